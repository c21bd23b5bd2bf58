#include "planning/describe.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "gpu/runtime.hpp"
#include "plan/strides.hpp"
#include "planning/save_limits.hpp"
#include "shard/box_math.hpp"
#include "shard/box_sweep.hpp"

namespace cairn::planning {
namespace {

Error wrong(const Shard& shard, const std::string& what) {
  return {ErrorKind::kUsage, fmt::format("tensor '{}' (section {}): {}", base::printable(shard.name),
                                         base::printable(shard.section), what)};
}

std::uint64_t box_bytes(const Shard& shard, const Box& box) {
  const std::uint64_t bits = shard::elements_of(box) * bits_of(shard.dtype);
  if (bits % 8 != 0)
    throw wrong(shard, fmt::format("box {} of a sub-byte dtype ends inside a byte", shard::to_string(box)));
  return bits / 8;
}

void check_placement(const Shard& shard, const Box& box, const Placement& placement) {
  const std::string shown = "box " + shard::to_string(box) + " in memory: ";
  const std::string problem = plan::stride_problem(box.shape, placement.strides);
  if (!problem.empty()) throw wrong(shard, shown + problem);
  const unsigned bits = bits_of(shard.dtype);
  if (bits < 8 && !plan::is_dense(box.shape, placement.strides)) {
    throw wrong(shard, shown + fmt::format("strides leave gaps, which {} cannot have", name_of(shard.dtype)));
  }
  const std::uint64_t span = plan::span_elements(box.shape, placement.strides).value_or(0);
  const auto end = base::try_add(placement.offset, span);
  if (!end || *end > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / bits) {
    throw wrong(shard, shown + "it ends beyond what memory can hold");
  }
  if (placement.offset * bits % 8 != 0) throw wrong(shard, shown + "it begins inside a byte");
}

void check_device_pointer(const Shard& shard, const void* data) {
  const gpu::Availability devices = gpu::availability();
  if (devices.devices == 0)
    throw wrong(shard, "its memory is said to be a device's, but there is none: " + devices.reason);
  const gpu::MemoryKind kind = gpu::place_of(data).kind;
  if (data == nullptr || kind == gpu::MemoryKind::kDevice || kind == gpu::MemoryKind::kManaged) return;
  throw wrong(shard, "its memory is said to be a device's, but the pointer is not of a device");
}

void check_box(const Shard& shard, const Box& box) {
  if (shard::fits(box, shard.shape)) return;
  const std::string shape = shard::shape_text(shard.shape);
  if (box.offset.size() != shard.shape.size() || box.shape.size() != shard.shape.size()) {
    throw wrong(shard, fmt::format("a box has offset {} and shape {}, but the tensor's shape is {}: give a number for "
                                   "each of its {} in both",
                                   shard::shape_text(box.offset), shard::shape_text(box.shape), shape,
                                   base::counted(shard.shape.size(), "dimension")));
  }
  throw wrong(shard, fmt::format("box {} (offset {}, shape {}) does not fit shape {}", shard::to_string(box),
                                 shard::shape_text(box.offset), shard::shape_text(box.shape), shape));
}

/// The memory that the program says it gives, against the memory that the boxes take. `end_to_end`: bytes of all boxes.
void check_size(const Shard& shard, std::uint64_t end_to_end, const std::optional<std::uint64_t>& data_bytes) {
  if (!data_bytes) return;
  std::uint64_t needed = end_to_end;
  for (std::size_t i = 0; i < shard.placements.size(); ++i) {
    if (i == 0) needed = 0;
    if (shard::is_empty(shard.boxes[i])) continue;
    const Placement& placement = shard.placements[i];
    const std::uint64_t span = plan::span_elements(shard.boxes[i].shape, placement.strides).value();
    needed = std::max(needed, base::ceil_div((placement.offset + span) * bits_of(shard.dtype), std::uint64_t{8}));
  }
  if (shard.placements.empty() ? *data_bytes == needed : *data_bytes >= needed) return;
  throw wrong(shard, fmt::format("its memory has {}, but its {} of {} take{} {}{}", base::counted(*data_bytes, "byte"),
                                 base::counted(shard.boxes.size(), "box", "boxes"), name_of(shard.dtype),
                                 shard.boxes.size() == 1 ? "s" : "", base::group_digits(needed),
                                 shard.placements.empty() ? "" : " where it is placed"));
}

template <class Entry>
void check_entry(const Entry& shard) {
  const void* const data = shard.data;
  if (!base::is_utf8(shard.section)) throw wrong(shard, "the section is not UTF-8");
  if (shard.name.empty()) throw wrong(shard, "the name is empty");
  if (!base::is_utf8(shard.name)) throw wrong(shard, "the name is not UTF-8");
  if (shard.name == "__metadata__") throw wrong(shard, "safetensors reserves this name");
  if (shard.shape.size() > plan::kMaxDimensions) {
    throw wrong(shard,
                fmt::format("{} dimensions; at most {} are supported", shard.shape.size(), plan::kMaxDimensions));
  }
  if (const auto dtype = static_cast<std::uint64_t>(shard.dtype); dtype >= static_cast<std::uint64_t>(kDTypeCount)) {
    throw wrong(shard,
                fmt::format("its dtype has the value {}, which is none of DType", static_cast<int>(shard.dtype)));
  }
  const format::TensorSize size = format::try_tensor_bytes(shard.dtype, shard.shape);
  if (size.error) throw wrong(shard, size.reason);
  std::uint64_t bytes = 0;
  for (const Box& box : shard.boxes) {
    check_box(shard, box);
    bytes += box_bytes(shard, box);
  }
  if (!shard.placements.empty() && shard.placements.size() != shard.boxes.size()) {
    throw wrong(shard, fmt::format("{} placements for {} boxes", shard.placements.size(), shard.boxes.size()));
  }
  for (std::size_t i = 0; i < shard.placements.size(); ++i) {
    check_placement(shard, shard.boxes[i], shard.placements[i]);
  }
  check_size(shard, bytes, shard.data_bytes);
  if (bytes != 0 && data == nullptr) throw wrong(shard, "the pointer to its data is null");
  if (shard.memory != Memory::kHost) check_device_pointer(shard, data);
}

/// The strides of box number `i`, or none if they leave no gap.
std::vector<std::uint64_t> gaps_of(const Shard& shard, std::size_t i) {
  const std::vector<std::uint64_t>& strides = shard.placements[i].strides;
  return plan::is_dense(shard.boxes[i].shape, strides) ? std::vector<std::uint64_t>() : strides;
}

template <class Entry>
void add_boxes_of(const Entry& entry, std::uint32_t shard, std::vector<plan::MemoryBox>& out) {
  // A source's memory is only read; the type is shared with targets.
  auto* const data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(entry.data)));
  const unsigned bits = bits_of(entry.dtype);
  std::uint64_t end_to_end = 0;
  for (std::size_t i = 0; i < entry.boxes.size(); ++i) {
    std::uint64_t begin = end_to_end;
    std::uint64_t bytes = box_bytes(entry, entry.boxes[i]);
    std::vector<std::uint64_t> strides;
    if (entry.placements.empty()) {
      end_to_end += bytes;
    } else {
      begin = entry.placements[i].offset * bits / 8;
      strides = gaps_of(entry, i);
      if (!strides.empty()) bytes = plan::span_elements(entry.boxes[i].shape, strides).value() * bits / 8;
    }
    std::byte* const at = bytes == 0 ? data : data + begin;
    out.push_back({shard, entry.boxes[i], {at, bytes}, entry.memory, std::move(strides)});
  }
}

}  // namespace

std::string rank_blob_name(int rank) { return fmt::format("rank-{:05d}", rank); }

void check_shards(std::span<const Source> state) {
  for (const Source& source : state) {
    if (const std::string problem = section_problem(source.section); !problem.empty()) throw wrong(source, problem);
    check_entry(source);
  }
}

void check_shards(std::span<const Target> targets) {
  for (const Target& target : targets) check_entry(target);
}

namespace {

struct NameKey {
  std::string_view section;
  std::string_view name;

  friend bool operator==(const NameKey&, const NameKey&) = default;
};

struct HashName {
  std::size_t operator()(const NameKey& key) const {
    const std::hash<std::string_view> hash;
    return hash(key.name) ^ hash(key.section) * 31;
  }
};

/// Groups of shards (by number) with a common section and name, by their first shard; without groups of one shard.
template <class ShardAt>
std::map<std::size_t, std::vector<std::size_t>> same_names(std::size_t count, const ShardAt& shard_at) {
  std::unordered_map<NameKey, std::size_t, HashName> first;
  first.reserve(count);
  std::map<std::size_t, std::vector<std::size_t>> repeated;
  for (std::size_t i = 0; i < count; ++i) {
    const Shard& shard = shard_at(i);
    const auto [at, is_new] = first.try_emplace({shard.section, shard.name}, i);
    if (is_new) continue;
    std::vector<std::size_t>& all = repeated[at->second];
    if (all.empty()) all.push_back(at->second);
    all.push_back(i);
  }
  return repeated;
}

/// Two boxes that have elements in common; nullopt if all boxes are disjoint.
std::optional<std::pair<const Box*, const Box*>> find_common(std::vector<const Box*> boxes) {
  std::erase_if(boxes, [](const Box* box) { return shard::is_empty(*box); });
  if (boxes.size() < 2) return std::nullopt;
  const std::size_t dimensions = boxes.front()->shape.size();
  if (dimensions == 0) return std::pair(boxes[0], boxes[1]);
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto found =
      shard::find_overlap(std::span(order), dimensions, [&](std::size_t i) -> const Box& { return *boxes[i]; });
  if (!found) return std::nullopt;
  return std::pair(boxes[found->first], boxes[found->second]);
}

void collect_boxes(const Shard& shard, std::vector<const Box*>& boxes) {
  for (const Box& box : shard.boxes) boxes.push_back(&box);
}

std::string type_text(const Shard& shard) {
  return fmt::format("{} {}", name_of(shard.dtype), shard::shape_text(shard.shape));
}

void refuse_common(const Shard& shard, std::vector<const Box*> boxes, const char* why, const char* remedy) {
  const auto common = find_common(std::move(boxes));
  if (!common) return;
  throw wrong(shard, fmt::format("{}, which hold {} and {}; {}", why, shard::to_string(*common->first),
                                 shard::to_string(*common->second), remedy));
}

constexpr const char* kSaveOnce = "one of the two would be lost: give each element of a tensor once on a rank";

}  // namespace

void check_distinct(std::span<const Source> state) {
  for (const auto& [first, all] : same_names(state.size(), [&](std::size_t i) -> const Shard& { return state[i]; })) {
    std::vector<const Box*> boxes;
    for (const std::size_t i : all) {
      if (state[first].dtype != state[i].dtype || state[first].shape != state[i].shape) {
        throw wrong(state[i], fmt::format("the name is given twice on this rank, as {} and as {}; names are unique in "
                                          "a section",
                                          type_text(state[first]), type_text(state[i])));
      }
      collect_boxes(state[i], boxes);
    }
    refuse_common(state[first], std::move(boxes), "the name is given twice on this rank, by shards", kSaveOnce);
  }
  for (const Source& source : state) {
    if (source.boxes.size() < 2) continue;
    std::vector<const Box*> boxes;
    collect_boxes(source, boxes);
    refuse_common(source, std::move(boxes), "the shard has boxes with common elements", kSaveOnce);
  }
}

void check_distinct(std::span<const Target* const> targets) {
  const auto target_at = [&](std::size_t i) -> const Shard& { return *targets[i]; };
  for (const auto& [first, all] : same_names(targets.size(), target_at)) {
    // A load may request a tensor in several dtypes under one name: each dtype and shape is checked separately.
    std::map<std::pair<DType, std::vector<std::uint64_t>>, std::vector<const Target*>> by_type;
    for (const std::size_t i : all) by_type[{targets[i]->dtype, targets[i]->shape}].push_back(targets[i]);
    for (const auto& [type, same] : by_type) {
      if (same.size() < 2) continue;
      std::vector<const Box*> boxes;
      for (const Target* target : same) collect_boxes(*target, boxes);
      refuse_common(*same.front(), std::move(boxes), "the name is given twice on this rank, by targets",
                    "give a name once, or boxes without common elements");
    }
  }
}

void add_boxes(const Source& source, std::uint32_t shard, std::vector<plan::MemoryBox>& out) {
  add_boxes_of(source, shard, out);
}

void add_boxes(const Target& target, std::uint32_t shard, std::vector<plan::MemoryBox>& out) {
  add_boxes_of(target, shard, out);
}

std::vector<plan::MemoryBox> memory_boxes(std::span<const Source> state) {
  std::vector<plan::MemoryBox> boxes;
  for (std::uint32_t i = 0; i < state.size(); ++i) add_boxes(state[i], i, boxes);
  return boxes;
}

base::Bytes describe(std::span<const Source> state, const Options& options) {
  base::ByteWriter out;
  out.text(options.files.form);
  out.u64(options.files.max_bytes);
  out.u64(options.files.align_bytes);
  out.u64(options.files.block_bytes);
  out.u64(options.limits.memory_budget_bytes);
  const Quantisation& quantisation = options.quantisation;
  for (const auto& [section, codec] : quantisation.codecs) {
    out.text(section);
    out.text(codec);
  }
  out.u64(quantisation.disable_ckpt_quant ? 1 : 0);
  out.u64(quantisation.remove_master_weight ? 1 : 0);
  out.u64(quantisation.skip_save_model_weight ? 1 : 0);
  for (const auto& [key, value] : options.files.metadata) {
    out.text(key);
    out.text(value);
  }
  for (const Source& source : state) {
    out.u64(source.memory == Memory::kDevice ? 1 : 0);
    out.text(source.section);
    out.text(source.name);
    out.u64(static_cast<std::uint64_t>(source.dtype));
    out.u64s(source.shape);
    out.u64(source.boxes.size());
    for (const Box& box : source.boxes) {
      out.u64s(box.offset);
      out.u64s(box.shape);
    }
    out.u64(source.placements.size());  // offsets may change: runs count from the box's first element
    for (std::size_t i = 0; i < source.placements.size(); ++i) out.u64s(gaps_of(source, i));
  }
  return out.take();
}

}  // namespace cairn::planning
