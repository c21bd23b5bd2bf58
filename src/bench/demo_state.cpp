// Builds, fills and checks a synthetic state.
#include "bench/demo_state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

#include "base/bytes.hpp"
#include "base/internal_error.hpp"
#include "base/json.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "format/safetensors.hpp"
#include "shard/box_math.hpp"

namespace cairn::bench {

// Generates and checks the values. Boxes are deliberately traversed without the planner's code, because a check of the
// planner must not share its arithmetic.

namespace {

constexpr std::size_t kCheckBytes = 64 << 10;  // bytes compared at a time, few enough for the first cache levels

// FNV-1a, 64 bits.
std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

struct Lanes {
  std::uint64_t mask;
  std::uint64_t base;
  std::uint64_t sign;
};

// The mask keeps sign, three exponent bits and mantissa; the addition moves the exponent to [-8, -1]. No lane carries.
std::optional<Lanes> lanes_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return Lanes{0x83ff83ff83ff83ffULL, 0x3b803b803b803b80ULL, 0x8000800080008000ULL};
    case DType::kF16: return Lanes{0x9fff9fff9fff9fffULL, 0x1c001c001c001c00ULL, 0x8000800080008000ULL};
    case DType::kF32: return Lanes{0x83ffffff83ffffffULL, 0x3b8000003b800000ULL, 0x8000000080000000ULL};
    case DType::kF64: return Lanes{0x807fffffffffffffULL, 0x3f70000000000000ULL, 0x8000000000000000ULL};
    default: return std::nullopt;
  }
}

// Calls visit(flat index in the tensor, index in the memory, number of elements) for each run, until it returns false.
void for_each_flat_run(std::span<const std::uint64_t> shape, const Box& box,
                       const std::function<bool(std::uint64_t, std::uint64_t, std::uint64_t)>& visit) {
  std::vector<std::uint64_t> stride(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) stride[d - 1] = stride[d] * shape[d];
  // Dimensions from `inner` on are contiguous: the box covers all of them completely, except perhaps the first.
  std::size_t inner = shape.size();
  std::uint64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= box.shape[inner];
    if (box.shape[inner] != shape[inner]) break;
  }
  std::uint64_t runs = 1;
  for (std::size_t d = 0; d < inner; ++d) runs *= box.shape[d];
  if (run == 0) return;
  std::vector<std::uint64_t> index(box.offset);
  for (std::uint64_t r = 0; r < runs; ++r) {
    std::uint64_t flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) flat += index[d] * stride[d];
    if (!visit(flat, r * run, run)) return;
    for (std::size_t d = inner; d-- > 0;) {
      if (++index[d] < box.offset[d] + box.shape[d]) break;
      index[d] = box.offset[d];
    }
  }
}

std::string config_with_layers(const std::string& config, std::optional<std::uint64_t> layers) {
  if (!layers) return config;
  auto json = base::Json::parse(config, "config.json", {.dialect = base::JsonDialect::kPython});
  for (const char* key : {"num_hidden_layers", "n_layer"}) {
    if (json.contains(key)) json[key] = *layers;
  }
  return json.dump({.indent = 2, .dialect = base::JsonDialect::kPython}) + "\n";
}

DemoState state_of(shard::Model model, std::string config) {
  DemoState state;
  state.model = std::move(model);
  state.config = std::move(config);
  for (shard::SectionTensors& section : shard::training_state(state.model)) {
    for (Tensor& tensor : section.tensors) {
      state.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
      state.sections.push_back(section.section);
      state.tensors.push_back(std::move(tensor));
    }
  }
  if (state.tensors.empty()) throw Error(ErrorKind::kUsage, "this model has no tensors that Cairn knows; give --model");
  return state;
}

}  // namespace

DemoValues::DemoValues(std::string_view section, std::string_view name, DType dtype)
    : seed_(base::mix64(hash_text(hash_text(0xcbf29ce484222325ULL, section) * base::kGoldenGamma, name))),
      element_bytes_(bits_of(dtype) / 8) {
  if (bits_of(dtype) % 8 != 0) {
    throw Error(ErrorKind::kUsage, fmt::format("no values are made of dtype {} (tensor '{}'); choose another --model",
                                               name_of(dtype), base::printable(name)));
  }
  if (const auto lanes = lanes_of(dtype)) {
    mask_ = name.ends_with("/moment2_0") ? lanes->mask & ~lanes->sign : lanes->mask;
    base_ = lanes->base;
  }
}

std::uint64_t DemoValues::word(std::uint64_t index) const {
  return (base::mix64(seed_ + index * base::kGoldenGamma) & mask_) + base_;
}

void DemoValues::fill(std::uint64_t first, std::span<std::byte> out) const {
  std::uint64_t byte = first * element_bytes_;
  std::byte* to = out.data();
  std::size_t left = out.size();
  const auto partial = [&](std::size_t count) {
    const std::uint64_t value = word(byte / 8);
    std::memcpy(to, reinterpret_cast<const std::byte*>(&value) + byte % 8, count);
    to += count;
    byte += count;
    left -= count;
  };
  if (byte % 8 != 0) partial(std::min<std::size_t>(left, 8 - byte % 8));
  const std::uint64_t index = byte / 8;
  const std::size_t words = left / 8;
  for (std::size_t w = 0; w < words; ++w) {
    const std::uint64_t value = word(index + w);
    std::memcpy(to + 8 * w, &value, 8);
  }
  to += 8 * words;
  byte += 8 * words;
  left -= 8 * words;
  if (left != 0) partial(left);
}

std::optional<std::uint64_t> DemoValues::first_difference(std::uint64_t first, std::span<const std::byte> found) const {
  alignas(64) static thread_local std::array<std::byte, kCheckBytes> expected;
  for (std::size_t at = 0; at < found.size(); at += kCheckBytes) {
    const std::size_t count = std::min(kCheckBytes, found.size() - at);
    fill(first + at / element_bytes_, std::span(expected).first(count));
    if (std::memcmp(expected.data(), found.data() + at, count) == 0) continue;
    const auto [mine, theirs] =
        std::mismatch(expected.begin(), expected.end(), found.begin() + static_cast<std::ptrdiff_t>(at));
    return first + (at + static_cast<std::size_t>(mine - expected.begin())) / element_bytes_;
  }
  return std::nullopt;
}

void fill_box(const DemoValues& values, std::span<const std::uint64_t> shape, const Box& box,
              std::span<std::byte> memory) {
  const std::uint64_t size = values.element_bytes();
  for_each_flat_run(shape, box, [&](std::uint64_t flat, std::uint64_t at, std::uint64_t elements) {
    values.fill(flat, memory.subspan(at * size, elements * size));
    return true;
  });
}

std::optional<std::uint64_t> check_box(const DemoValues& values, std::span<const std::uint64_t> shape, const Box& box,
                                       std::span<const std::byte> memory) {
  const std::uint64_t size = values.element_bytes();
  std::optional<std::uint64_t> difference;
  for_each_flat_run(shape, box, [&](std::uint64_t flat, std::uint64_t at, std::uint64_t elements) {
    difference = values.first_difference(flat, memory.subspan(at * size, elements * size));
    return !difference;
  });
  return difference;
}

DemoState demo_state_by_name(const std::string& model_name, std::optional<std::uint64_t> layers) {
  shard::Model model = shard::model_by_name(model_name, layers);
  return state_of(std::move(model), config_with_layers(shard::config_of(model_name), layers));
}

DemoState demo_state_of_config(const std::string& config, std::optional<std::uint64_t> layers) {
  shard::Model model = shard::model_from_config(config, layers);
  return state_of(std::move(model), config_with_layers(config, layers));
}

std::uint64_t bytes_of(const DemoState& state, const shard::HeldTensor& held) {
  return shard::elements_of(held.boxes) * bits_of(state.tensors[held.tensor].dtype) / 8;
}

HeldState::HeldState(const DemoState& state, const shard::ShardMap& map, int rank)
    : HeldState(state, map.held_by(rank)) {
  own_ = std::make_unique_for_overwrite<std::byte[]>(bytes());
  memory_ = {own_.get(), bytes()};
}

HeldState::HeldState(const DemoState& state, const shard::ShardMap& map, int rank, RankMemory& memory)
    : HeldState(state, map.held_by(rank)) {
  memory_ = memory.take(bytes());
}

HeldState::HeldState(const DemoState& state, std::vector<shard::HeldTensor> held)
    : state_(state), held_(std::move(held)), begins_{0} {
  for (const shard::HeldTensor& part : held_) begins_.push_back(begins_.back() + bytes_of(state_, part));
}

std::span<std::byte> HeldState::memory_of(std::size_t held_index) {
  return memory_.subspan(begins_[held_index], begins_[held_index + 1] - begins_[held_index]);
}

void HeldState::overwrite() { std::ranges::fill(memory_, std::byte{0xa5}); }

void HeldState::fill() {
  for (std::size_t h = 0; h < held_.size(); ++h) {
    const Tensor& tensor = state_.tensors[held_[h].tensor];
    const DemoValues values(state_.sections[held_[h].tensor], tensor.name, tensor.dtype);
    std::span<std::byte> rest = memory_of(h);
    for (const Box& box : held_[h].boxes) {
      const std::uint64_t bytes = shard::elements_of(box) * values.element_bytes();
      fill_box(values, tensor.shape, box, rest.first(bytes));
      rest = rest.subspan(bytes);
    }
  }
}

HeldState::Comparison HeldState::compare() const {
  Comparison out;
  for (std::size_t h = 0; h < held_.size(); ++h) {
    const Tensor& tensor = state_.tensors[held_[h].tensor];
    const DemoValues values(state_.sections[held_[h].tensor], tensor.name, tensor.dtype);
    const std::byte* at = memory_.data() + begins_[h];
    for (const Box& box : held_[h].boxes) {
      const std::uint64_t bytes = shard::elements_of(box) * values.element_bytes();
      const auto element = check_box(values, tensor.shape, box, {at, bytes});
      if (element && !out.first) out.first = {held_[h].tensor, *element};
      at += bytes;
      out.bytes += bytes;
    }
    if (begins_[h + 1] != begins_[h]) out.tensors.push_back(held_[h].tensor);
  }
  return out;
}

Verdict reduce(comm::Communicator& communicator, const HeldState::Comparison& mine, std::size_t tensors) {
  std::vector<std::uint64_t> seen(tensors, 0);
  for (const std::uint32_t tensor : mine.tensors) seen[tensor] = 1;
  communicator.all_reduce(seen, comm::ReduceOp::kOr);
  Verdict out;
  out.tensors = static_cast<std::uint64_t>(std::count(seen.begin(), seen.end(), 1U));
  out.bytes = communicator.sum(mine.bytes);
  base::ByteWriter writer;
  if (mine.first) {
    writer.u64(mine.first->tensor);
    writer.u64(mine.first->element);
  }
  for (const base::Bytes& bytes : communicator.all_gather(writer.bytes())) {
    if (bytes.empty()) continue;
    base::ByteReader reader(bytes);
    const std::uint64_t tensor = reader.u64();
    const HeldState::Difference found{static_cast<std::uint32_t>(tensor), reader.u64()};
    const auto key = [](const HeldState::Difference& d) { return std::pair(d.tensor, d.element); };
    if (!out.first || key(found) < key(*out.first)) out.first = found;
  }
  return out;
}

void check_completeness(const Verdict& verdict, const DemoState& state) {
  if (verdict.tensors == state.tensors.size() && verdict.bytes >= state.bytes) return;
  throw base::internal_error(
      fmt::format("compared {} of {} tensors, {} of {} bytes: the layout leaves a part of the state on no rank",
                  verdict.tensors, state.tensors.size(), verdict.bytes, state.bytes));
}

std::uint64_t check_loaded(comm::Communicator& communicator, const HeldState& held, const DemoState& state,
                           const std::string& what) {
  HeldState::Comparison mine;
  comm::agree(communicator, "compare", [&] {
    mine = held.compare();
    if (mine.first) throw Error(ErrorKind::kIntegrity, fmt::format("{}: {}", what, describe(*mine.first, state)));
  });
  const Verdict verdict = reduce(communicator, mine, state.tensors.size());
  check_completeness(verdict, state);
  return verdict.bytes;
}

std::string describe(const HeldState::Difference& first, const DemoState& state) {
  return fmt::format("section {}, tensor '{}', element {}: not the value that was saved", state.sections[first.tensor],
                     base::printable(state.tensors[first.tensor].name), first.element);
}

}  // namespace cairn::bench
