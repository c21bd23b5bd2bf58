#include "sharded_state.hpp"

#include <algorithm>
#include <cstring>

#include "cut_out.hpp"

namespace cairn::test {
namespace {

std::uint64_t elements(const std::vector<std::uint64_t>& shape) {
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) n *= d;
  return n;
}

// Sanitizers must check Cairn's accesses to the bytes, but need not check how tests make them.
#define CAIRN_UNWATCHED __attribute__((no_sanitize("thread", "address", "undefined")))

CAIRN_UNWATCHED std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

CAIRN_UNWATCHED void fill_bytes(std::byte* bytes, std::size_t count, std::uint64_t salt) {
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(mix(salt + i) & 0xff);
}

std::uint64_t count_equal(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const std::size_t size = std::min(a.size(), b.size());
  if (size == 0 || std::memcmp(a.data(), b.data(), size) == 0) return size;
  std::uint64_t equal = 0;
  for (std::size_t i = 0; i < size; ++i) equal += a[i] == b[i] ? 1 : 0;
  return equal;
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Range torch_chunk(std::uint64_t n, std::uint64_t ranks, std::uint64_t rank) {
  const std::uint64_t step = (n + ranks - 1) / ranks;
  return {std::min(n, rank * step), std::min(n, rank * step + step)};
}

Range balanced(std::uint64_t n, std::uint64_t ranks, std::uint64_t rank) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

Box whole_box(const StateTensor& tensor) { return {std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape}; }

std::vector<Box> cut_dim(const StateTensor& tensor, std::size_t dim, Range range) {
  Box box = whole_box(tensor);
  box.offset[dim] = range.begin;
  box.shape[dim] = range.end - range.begin;
  if (elements(box.shape) == 0) return {};
  return {box};
}

/// A box per element would work for a flat range; whole rows of a 2-d tensor keep the number of boxes small.
std::vector<Box> flat_boxes(const StateTensor& tensor, Range range) {
  std::vector<Box> boxes;
  const std::uint64_t row =
      tensor.shape.empty() ? 1 : elements(tensor.shape) / std::max<std::uint64_t>(tensor.shape[0], 1);
  if (tensor.shape.size() != 2) return cut_dim(tensor, 0, {(range.begin + row - 1) / row, (range.end + row - 1) / row});
  for (std::uint64_t at = range.begin; at < range.end;) {
    const std::uint64_t column = at % row;
    const std::uint64_t rows = column == 0 ? std::max<std::uint64_t>((range.end - at) / row, 1) : 1;
    const std::uint64_t width = std::min(row - column, range.end - at);
    boxes.push_back({{at / row, column}, {rows, width}});
    at += width == row ? rows * row : width;
  }
  return boxes;
}

}  // namespace

std::vector<StateTensor> small_state() {
  std::vector<StateTensor> tensors = {
      {"model", "model.embed_tokens.weight", DType::kBF16, {211, 40}},
      {"model", "model.norm.weight", DType::kBF16, {40}},
      {"model", "scale", DType::kF32, {}},
      {"model", "nothing", DType::kF32, {0, 7}},
      {"model", "experts", DType::kF16, {6, 10, 9}},
      {"model", "packed4", DType::kF4, {12, 16}},
      {"model", "packed6", DType::kF6E2M3, {9, 20}},
      {"model", "quantised", DType::kF8E4M3, {33, 65}},
      {"optimizer", "step", DType::kI64, {}},
  };
  for (int layer = 0; layer < 11; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({"model", prefix + "mlp.up_proj.weight", DType::kBF16, {107, 40}});
    tensors.push_back({"model", prefix + "mlp.down_proj.weight", DType::kBF16, {40, 107}});
    tensors.push_back({"master_weights", prefix + "mlp.up_proj.weight", DType::kF32, {107, 40}});
    tensors.push_back({"optimizer", prefix + "mlp.up_proj.weight/moment1_0", DType::kF32, {107, 40}});
    tensors.push_back({"optimizer", prefix + "mlp.up_proj.weight/moment2_0", DType::kF32, {107, 40}});
  }
  return tensors;
}

std::vector<StateTensor> state_of_long_runs(int ranks) {
  const std::uint64_t rows = 2 * static_cast<std::uint64_t>(ranks) + 1;
  return {{"model", "long", DType::kF32, {rows, 300'001}},
          {"model", "short", DType::kBF16, {40, 41}},
          {"optimizer", "long", DType::kBF16, {rows, 700'003}}};
}

std::vector<Box> cut_boxes(const StateTensor& tensor, std::size_t index, Cut cut, int rank, int ranks) {
  const auto r = static_cast<std::uint64_t>(rank);
  const auto n = static_cast<std::uint64_t>(ranks);
  const bool sub_byte = bits_of(tensor.dtype) < 8;
  if (cut == Cut::kMixed) {
    constexpr Cut kAll[] = {Cut::kReplicated, Cut::kRows, Cut::kColumns, Cut::kFlat, Cut::kGrid, Cut::kOneRank};
    return cut_boxes(tensor, index, kAll[index % 6], rank, ranks);
  }
  if (cut == Cut::kOneRank) return rank == ranks - 1 ? std::vector<Box>{whole_box(tensor)} : std::vector<Box>{};
  if (cut == Cut::kReplicated || tensor.shape.empty()) return {whole_box(tensor)};
  if (sub_byte || cut == Cut::kRows) return cut_dim(tensor, 0, torch_chunk(tensor.shape[0], n, r));
  if (cut == Cut::kColumns) return cut_dim(tensor, tensor.shape.size() - 1, balanced(tensor.shape.back(), n, r));
  if (cut == Cut::kFlat) return flat_boxes(tensor, balanced(elements(tensor.shape), n, r));
  if (n % 2 != 0 || tensor.shape.size() < 2) return cut_dim(tensor, 0, torch_chunk(tensor.shape[0], n, r));
  Box box = whole_box(tensor);
  const Range rows = torch_chunk(tensor.shape[0], n / 2, r / 2);
  const Range columns = balanced(tensor.shape.back(), 2, r % 2);
  box.offset.front() = rows.begin;
  box.shape.front() = rows.end - rows.begin;
  box.offset.back() = columns.begin;
  box.shape.back() = columns.end - columns.begin;
  if (elements(box.shape) == 0) return {};
  return {box};
}

std::vector<std::byte> whole_content(const StateTensor& tensor, std::size_t index, int version) {
  std::vector<std::byte> content(elements(tensor.shape) * bits_of(tensor.dtype) / 8);
  const std::uint64_t salt = mix(index * 1000 + static_cast<std::uint64_t>(version));
  fill_bytes(content.data(), content.size(), salt);
  return content;
}

RankState::RankState(const std::vector<StateTensor>& tensors, Cut cut, int rank, int ranks) : tensors_(tensors) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    boxes_.push_back(cut_boxes(tensors_[i], i, cut, rank, ranks));
    std::uint64_t bits = 0;
    for (const Box& box : boxes_.back()) bits += elements(box.shape) * bits_of(tensors_[i].dtype);
    memory_.emplace_back(bits / 8);
  }
}

std::vector<std::byte> RankState::expected(std::size_t i, int version) const {
  const StateTensor& tensor = tensors_[i];
  const std::vector<std::byte> whole = whole_content(tensor, i, version);
  if (bits_of(tensor.dtype) >= 8) return cut_out(whole, tensor.shape, bits_of(tensor.dtype) / 8, boxes_[i]);
  std::vector<std::byte> out;
  const std::uint64_t row = tensor.shape.empty() || tensor.shape[0] == 0 ? 1 : whole.size() / tensor.shape[0];
  for (const Box& box : boxes_[i]) {  // boxes of whole rows: contiguous
    const std::uint64_t begin = box.offset.empty() ? 0 : box.offset[0] * row;
    out.insert(out.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin),
               whole.begin() + static_cast<std::ptrdiff_t>(begin + elements(box.shape) * bits_of(tensor.dtype) / 8));
  }
  return out;
}

void RankState::fill(int version) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) memory_[i] = expected(i, version);
}

void RankState::clear() {
  for (auto& memory : memory_) std::fill(memory.begin(), memory.end(), std::byte{0});
}

std::uint64_t RankState::matching_bytes(int version) const {
  std::uint64_t matching = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) matching += count_equal(memory_[i], expected(i, version));
  return matching;
}

std::uint64_t RankState::equal_bytes(const RankState& other) const {
  std::uint64_t equal = 0;
  for (std::size_t i = 0; i < memory_.size(); ++i) equal += count_equal(memory_[i], other.memory_.at(i));
  return equal;
}

std::uint64_t RankState::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& memory : memory_) bytes += memory.size();
  return bytes;
}

void RankState::describe(std::size_t i, Shard& shard) const {
  shard.section = tensors_[i].section;
  shard.name = tensors_[i].name;
  shard.dtype = tensors_[i].dtype;
  shard.shape = tensors_[i].shape;
  shard.boxes = boxes_[i];
}

std::vector<Source> RankState::sources() {
  std::vector<Source> sources(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    describe(i, sources[i]);
    sources[i].data = memory_[i].data();
  }
  return sources;
}

std::vector<Target> RankState::targets() {
  std::vector<Target> targets(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    describe(i, targets[i]);
    targets[i].data = memory_[i].data();
  }
  return targets;
}

}  // namespace cairn::test
