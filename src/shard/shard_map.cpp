// Binds a layout to tensors once, and answers queries for any rank.
#include "shard/shard_map.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/bind.hpp"
#include "shard/box_math.hpp"
#include "shard/chunk.hpp"

namespace cairn::shard {

// A layout bound to tensors, in a form for quick queries of a rank's boxes.
//
// Tensors with the same shape and cuts share a class, whose boxes are computed once per call. Tensors on the same ranks
// share a Where. A call then costs about one small copy per held tensor. Immutable: threads may share it.

class BoundMap {
 public:
  /// Throws Error(kUsage).
  BoundMap(Layout layout, const Model& model, const std::vector<std::string>& sections,
           const std::vector<Tensor>& tensors);

  [[nodiscard]] std::vector<HeldTensor> held_by(std::uint64_t rank) const;
  /// The result of ShardMap::notes.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct ShardClass {
    std::vector<std::uint64_t> shape;
    std::vector<Cut> cuts;
    const RankBoxes* boxes = nullptr;
  };
  struct Buffer {
    const FlatRule* rule = nullptr;
    std::uint64_t itemsize_bits = 32;    ///< size of an element of the first tensor's parameter
    std::vector<std::uint32_t> tensors;  ///< in buffer order
  };
  struct Item {
    std::uint32_t shard_class = 0;
    std::uint32_t where = 0;
    bool flat = false;
  };
  /// The boxes of every class on one rank, computed on first use.
  class RankView;

  void bind_all(const Model& model, const std::vector<std::string>& sections, const std::vector<Tensor>& tensors);
  std::uint32_t class_of(const Tensor& tensor, TensorRule&& rule);
  std::uint32_t where_of(Where&& where);
  void check_class(const ShardClass& shard, const std::string& name) const;
  void check_cut(const ShardClass& shard, const Cut& cut, std::vector<std::uint64_t>& sizes,
                 const std::string& name) const;
  [[nodiscard]] std::vector<Box> boxes_on(const ShardClass& shard, std::uint64_t rank) const;
  [[nodiscard]] bool is_on(const Where& where, std::uint64_t rank) const;
  void add_flat(const Buffer& buffer, RankView& view, std::vector<HeldTensor>& held) const;

  Layout layout_;
  const LayoutRules& rules_;
  std::vector<std::string> notes_;
  std::vector<Item> items_;  ///< by tensor
  std::vector<ShardClass> classes_;
  std::vector<Where> wheres_;
  std::vector<Buffer> buffers_;
  // Sorted maps, since shapes and layouts from outside could make a hash table slow.
  std::map<std::string, std::uint32_t> class_index_;
  std::map<std::string, std::uint32_t> where_index_;
};

namespace {

void append(std::string& key, std::initializer_list<std::uint64_t> numbers) {
  for (const std::uint64_t number : numbers) key += std::to_string(number) + ',';
}

void append(std::string& key, const std::vector<std::uint64_t>& numbers) {
  for (const std::uint64_t number : numbers) key += std::to_string(number) + ',';
  key += ';';
}

// A string that is the same for equal rules, so one comparison replaces those of many small vectors.
std::string key_of(const std::vector<std::uint64_t>& shape, const std::vector<Cut>& cuts, const RankBoxes* boxes) {
  std::string key;
  append(key, shape);
  for (const Cut& cut : cuts) {
    const ChunkSpec& s = cut.spec;
    append(key, {cut.dim, static_cast<std::uint64_t>(s.kind), s.unit, s.split_factor, s.equal_parts, s.interleave,
                 s.period, s.block, s.scaled});
    for (const std::uint32_t axis : cut.axes) append(key, {axis});
    key += ';';
    append(key, s.boundaries);
    append(key, s.parts);
    for (const auto& ranges : s.rows) {
      for (const Range& range : ranges) append(key, {range.begin, range.end});
      key += ';';
    }
  }
  if (boxes != nullptr) key += fmt::format("@{}", static_cast<const void*>(boxes));
  return key;
}

std::string key_of(const Where& where) {
  std::string key;
  for (const auto& condition : where.conditions) {
    append(key, {condition.axis});
    append(key, condition.coordinates);
  }
  key += '|';
  if (where.only_ranks) append(key, *where.only_ranks);
  key += '|';
  append(key, where.absent_ranks);
  return key;
}

bool contains(const std::vector<std::uint64_t>& list, std::uint64_t value) {
  return std::ranges::find(list, value) != list.end();
}

FlatBuffer flat_buffer(const FlatRule& rule, const std::vector<std::uint64_t>& numels, std::uint64_t ways,
                       std::uint64_t itemsize_bits) {
  switch (rule.kind) {
    case FlatKind::kZero1:
      return zero1_buffer(numels, {ways, rule.alignment != 0 ? rule.alignment : 2, rule.round_robin});
    case FlatKind::kZero3: return zero3_buffer(numels, ways);
    case FlatKind::kFsdp1: {
      const std::uint64_t bytes = rule.alignment != 0 ? rule.alignment : 16;
      const std::uint64_t elems = std::max<std::uint64_t>(1, bytes * 8 / itemsize_bits);
      return fsdp1_buffer(numels, ways, rule.use_orig_params ? elems : 0);
    }
    case FlatKind::kMegatron: break;
  }
  return megatron_buffer(numels, {ways, rule.bucket_size, rule.alignment != 0 ? rule.alignment : 64, rule.pad_to, {}});
}

}  // namespace

class BoundMap::RankView {
 public:
  RankView(const BoundMap& map, std::uint64_t rank) : map_(map), rank_(rank), boxes_(map.classes_.size()) {
    present_.reserve(map.wheres_.size());
    for (const Where& where : map.wheres_) present_.push_back(map.is_on(where, rank) ? 1 : 0);
  }
  [[nodiscard]] std::uint64_t rank() const { return rank_; }
  [[nodiscard]] bool present(const Item& item) const {
    if (present_[item.where] == 0) return false;
    const RankBoxes* explicit_boxes = map_.classes_[item.shard_class].boxes;
    return explicit_boxes == nullptr || explicit_boxes->contains(rank_);
  }
  const std::vector<Box>& boxes(const Item& item) {
    auto& slot = boxes_[item.shard_class];
    if (!slot) slot = map_.boxes_on(map_.classes_[item.shard_class], rank_);
    return *slot;
  }

 private:
  const BoundMap& map_;
  std::uint64_t rank_;
  std::vector<char> present_;
  std::vector<std::optional<std::vector<Box>>> boxes_;
};

BoundMap::BoundMap(Layout layout, const Model& model, const std::vector<std::string>& sections,
                   const std::vector<Tensor>& tensors)
    : layout_(std::move(layout)), rules_(layout_.rules()) {
  bind_all(model, sections, tensors);
  class_index_.clear();
  where_index_.clear();
}

void BoundMap::bind_all(const Model& model, const std::vector<std::string>& sections,
                        const std::vector<Tensor>& tensors) {
  const std::vector<TensorFacts> facts = facts_of(model, sections, tensors);
  JsonBinder binder(rules_, model);  // treats a short form like a JSON form without rules
  std::map<std::string, std::uint32_t> buffer_index;
  items_.reserve(tensors.size());
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    TensorRule rule = binder.bind({tensors[i], sections[i], facts[i]});
    Item item;
    item.where = where_of(std::move(rule.where));
    if (rule.flat != nullptr) {
      item.flat = true;
      const auto [entry, added] = buffer_index.try_emplace(rule.buffer, static_cast<std::uint32_t>(buffers_.size()));
      if (added) buffers_.push_back({rule.flat, bits_of(facts[i].parameter_dtype), {}});
      buffers_[entry->second].tensors.push_back(i);
    }
    item.shard_class = class_of(tensors[i], std::move(rule));
    items_.push_back(item);
  }
  for (Buffer& buffer : buffers_) {
    std::ranges::stable_sort(buffer.tensors, {}, [&](std::uint32_t t) { return facts[t].position; });
  }
  binder.add_notes(notes_);
}

std::uint32_t BoundMap::class_of(const Tensor& tensor, TensorRule&& rule) {
  const auto [entry, added] = class_index_.try_emplace(key_of(tensor.shape, rule.cuts, rule.boxes),
                                                       static_cast<std::uint32_t>(classes_.size()));
  if (added) {
    ShardClass shard{tensor.shape, std::move(rule.cuts), rule.boxes};
    check_class(shard, tensor.name);
    classes_.push_back(std::move(shard));
  }
  return entry->second;
}

std::uint32_t BoundMap::where_of(Where&& where) {
  const auto [entry, added] = where_index_.try_emplace(key_of(where), static_cast<std::uint32_t>(wheres_.size()));
  if (added) wheres_.push_back(std::move(where));
  return entry->second;
}

// Follows the possible sizes of a dimension after each cut, so that errors are found now and not later on some rank.
void BoundMap::check_class(const ShardClass& shard, const std::string& name) const {
  if (shard.boxes != nullptr) {
    for (const auto& [rank, boxes] : *shard.boxes) {
      for (const Box& box : boxes) {
        if (fits(box, shard.shape)) continue;
        throw Error(ErrorKind::kUsage,
                    fmt::format("layout: tensor '{}': box {} of rank {} does not fit shape [{}]", base::printable(name),
                                to_string(box), rank, base::joined(shard.shape)));
      }
    }
    return;
  }
  std::vector<std::vector<std::uint64_t>> sizes;
  for (const std::uint64_t size : shard.shape) sizes.push_back({size});
  for (const Cut& cut : shard.cuts) {
    if (cut.dim >= shard.shape.size()) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("layout: tensor '{}' of shape [{}] has no dimension {} to cut over {}",
                              base::printable(name), base::joined(shard.shape), cut.dim, describe(rules_, cut.axes)));
    }
    check_cut(shard, cut, sizes[cut.dim], name);
  }
}

void BoundMap::check_cut(const ShardClass& shard, const Cut& cut, std::vector<std::uint64_t>& sizes,
                         const std::string& name) const {
  const std::uint64_t ways = ways_of(rules_, cut.axes);
  std::set<std::uint64_t> next;
  for (const std::uint64_t size : sizes) {
    if (size == 0) {
      next.insert(0);
      continue;
    }
    if (const std::string problem = chunk_problem(cut.spec, size, ways); !problem.empty()) {
      const bool advise = cut.spec.kind == ChunkKind::kEven;
      const char* advice = rules_.short_form ? "; add `uneven` to the layout or choose a degree that divides"
                                             : "; use chunk \"balanced\" or \"torch\" or another degree";
      throw Error(
          ErrorKind::kUsage,
          fmt::format("layout: tensor '{}': dimension {} of size {} cannot be cut over {}: {}{}", base::printable(name),
                      cut.dim, shard.shape[cut.dim], describe(rules_, cut.axes), problem, advise ? advice : ""));
    }
    const auto held = held_sizes(cut.spec, size, ways);
    next.insert(held.begin(), held.end());
  }
  sizes.assign(next.begin(), next.end());
}

bool BoundMap::is_on(const Where& where, std::uint64_t rank) const {
  for (const auto& condition : where.conditions) {
    const Axis& axis = rules_.axes[condition.axis];
    if (!contains(condition.coordinates, rank / axis.stride % axis.size)) return false;
  }
  return (!where.only_ranks || contains(*where.only_ranks, rank)) && !contains(where.absent_ranks, rank);
}

std::vector<Box> BoundMap::boxes_on(const ShardClass& shard, std::uint64_t rank) const {
  std::vector<Box> out;
  if (shard.boxes != nullptr) {
    const auto found = shard.boxes->find(rank);
    if (found != shard.boxes->end()) out = found->second;
    std::erase_if(out, is_empty);
  } else {
    std::vector<std::vector<Range>> ranges;
    for (const std::uint64_t size : shard.shape) {
      ranges.emplace_back();
      if (size != 0) ranges.back().push_back({0, size});
    }
    for (const Cut& cut : shard.cuts) {
      std::vector<Range>& held = ranges[cut.dim];
      if (held.empty()) continue;
      held =
          compose(held, chunk(cut.spec, size_of(held), ways_of(rules_, cut.axes), position_of(rules_, cut.axes, rank)));
    }
    out = boxes_of(ranges);
  }
  merge_neighbours(out);
  return out;
}

void BoundMap::add_flat(const Buffer& buffer, RankView& view, std::vector<HeldTensor>& held) const {
  std::vector<std::uint32_t> tensors;
  std::vector<std::uint64_t> numels;
  for (const std::uint32_t tensor : buffer.tensors) {
    if (!view.present(items_[tensor])) continue;
    tensors.push_back(tensor);
    numels.push_back(elements_of(view.boxes(items_[tensor])));
  }
  const std::uint64_t ways = ways_of(rules_, buffer.rule->axes);
  const FlatBuffer flat = flat_buffer(*buffer.rule, numels, ways, buffer.itemsize_bits);
  for (const FlatPiece& piece : pieces_of(flat, numels, ways, position_of(rules_, buffer.rule->axes, view.rank()))) {
    const std::uint32_t tensor = tensors[piece.tensor];
    held.push_back({tensor, slice(view.boxes(items_[tensor]), piece.begin, piece.end)});
  }
}

std::vector<HeldTensor> BoundMap::held_by(std::uint64_t rank) const {
  RankView view(*this, rank);
  std::vector<HeldTensor> held;
  for (std::uint32_t tensor = 0; tensor < items_.size(); ++tensor) {
    const Item& item = items_[tensor];
    if (!item.flat && view.present(item)) held.push_back({tensor, view.boxes(item)});
  }
  if (buffers_.empty()) return held;
  for (const Buffer& buffer : buffers_) add_flat(buffer, view, held);
  std::ranges::sort(held, {}, &HeldTensor::tensor);
  return held;
}

ShardMap::ShardMap(Layout layout, Model model, std::vector<std::string> sections, std::vector<Tensor> tensors)
    : layout_(std::move(layout)),
      model_(std::move(model)),
      sections_(std::move(sections)),
      tensors_(std::move(tensors)) {
  if (sections_.size() != tensors_.size()) {
    throw base::internal_error(fmt::format("ShardMap: {} sections for {} tensors", sections_.size(), tensors_.size()));
  }
  bound_ = std::make_shared<const BoundMap>(layout_, model_, sections_, tensors_);
  notes_ = bound_->notes();
}

std::vector<HeldTensor> ShardMap::held_by(int rank) const {
  if (rank < 0 || rank >= layout_.world_size()) {
    throw base::internal_error(fmt::format("ShardMap: rank {} of {}", rank, layout_.world_size()));
  }
  return bound_->held_by(static_cast<std::uint64_t>(rank));
}

}  // namespace cairn::shard
