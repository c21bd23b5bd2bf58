#include "checkpoint/diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "checkpoint/values.hpp"
#include "comm/agree.hpp"
#include "plan/catalog.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

using Key = std::pair<std::string, std::string>;

/// A tensor of both, to be compared element by element.
struct Pair {
  std::size_t row = 0;  ///< in DiffResult::tensors
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint64_t elements = 0;
};

/// A flat range of a pair, small enough for memory.
struct Piece {
  const Pair* pair = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::map<Key, std::uint32_t> numbers_of(const OpenCheckpoint& checkpoint) {
  std::map<Key, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < checkpoint.stored.tensors.size(); ++i) {
    numbers[{checkpoint.stored.tensors[i].section, checkpoint.stored.tensors[i].name}] = i;
  }
  return numbers;
}

TensorDiff compare_heads(const format::StoredTensor& a, const format::StoredTensor& b) {
  TensorDiff diff;
  diff.section = a.section;
  diff.name = a.name;
  diff.elements = shard::elements_of(a.shape);
  if (a.shape != b.shape) {
    diff.verdict = TensorVerdict::kOtherShape;
    diff.detail = fmt::format("[{}] against [{}]", fmt::join(a.shape, ", "), fmt::join(b.shape, ", "));
  } else if (a.dtype != b.dtype) {
    diff.verdict = TensorVerdict::kOtherDtype;
    diff.detail = fmt::format("{} against {}", name_of(a.dtype), name_of(b.dtype));
  }
  return diff;
}

TensorDiff only_in(const format::StoredTensor& tensor, TensorVerdict verdict) {
  TensorDiff diff;
  diff.section = tensor.section;
  diff.name = tensor.name;
  diff.verdict = verdict;
  diff.elements = shard::elements_of(tensor.shape);
  return diff;
}

/// Rows in catalog order, and the pairs whose elements can be compared.
std::vector<Pair> pair_up(const OpenCheckpoint& a, const OpenCheckpoint& b, DiffResult& result) {
  const auto in_a = numbers_of(a);
  const auto in_b = numbers_of(b);
  std::vector<Key> keys;
  for (const auto& [key, number] : in_a) keys.push_back(key);
  for (const auto& [key, number] : in_b) {
    if (!in_a.contains(key)) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [](const Key& x, const Key& y) {
    const auto section = plan::section_order(x.first, y.first);
    return section != 0 ? section < 0 : plan::natural_order(x.second, y.second) < 0;
  });
  std::vector<Pair> pairs;
  for (const Key& key : keys) {
    const auto at_a = in_a.find(key);
    const auto at_b = in_b.find(key);
    if (at_b == in_b.end()) {
      result.tensors.push_back(only_in(a.stored.tensors[at_a->second], TensorVerdict::kOnlyInA));
    } else if (at_a == in_a.end()) {
      result.tensors.push_back(only_in(b.stored.tensors[at_b->second], TensorVerdict::kOnlyInB));
    } else {
      const auto& tensor_a = a.stored.tensors[at_a->second];
      const auto& tensor_b = b.stored.tensors[at_b->second];
      result.tensors.push_back(compare_heads(tensor_a, tensor_b));
      const TensorDiff& row = result.tensors.back();
      const bool values = has_values(tensor_a.dtype) && has_values(tensor_b.dtype);
      const bool comparable =
          row.verdict == TensorVerdict::kEqual || (row.verdict == TensorVerdict::kOtherDtype && values);
      if (comparable) pairs.push_back({result.tensors.size() - 1, at_a->second, at_b->second, row.elements});
    }
  }
  return pairs;
}

/// This rank's share of every pair, in pieces of at most `piece_elements` (a multiple of 8, so that sub-byte groups stay
/// whole).
std::vector<Piece> share_of(const std::vector<Pair>& pairs, comm::Communicator& communicator,
                            std::uint64_t piece_elements) {
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  const auto rank = static_cast<std::uint64_t>(communicator.rank());
  std::vector<Piece> pieces;
  for (const Pair& pair : pairs) {
    const std::uint64_t share = base::round_up(base::ceil_div(pair.elements, ranks), 8);
    const std::uint64_t first = std::min(pair.elements, rank * share);
    const std::uint64_t last = std::min(pair.elements, first + share);
    for (std::uint64_t at = first; at < last; at += piece_elements) {
      pieces.push_back({&pair, at, std::min(at + piece_elements, last)});
    }
  }
  return pieces;
}

/// What the ranks found of one tensor.
struct Tally {
  std::vector<std::uint64_t> differing;
  std::vector<double> max_difference;
};

void compare_values(const format::StoredTensor& a, const format::StoredTensor& b, std::span<const std::byte> bytes_a,
                    std::span<const std::byte> bytes_b, std::size_t row, Tally& tally) {
  const std::vector<double> x = decode_values(a.dtype, bytes_a);
  const std::vector<double> y = decode_values(b.dtype, bytes_b);
  const std::size_t width = bits_of(a.dtype) / 8;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool differs = a.dtype == b.dtype ? std::memcmp(&bytes_a[i * width], &bytes_b[i * width], width) != 0
                                            : !(x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])));
    if (!differs) continue;
    ++tally.differing[row];
    double difference = std::abs(x[i] - y[i]);
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) difference = 0;
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    tally.max_difference[row] = std::max(tally.max_difference[row], difference);
  }
}

/// Sub-byte and other dtypes without values: whole groups of bytes are compared, and count for their elements.
void compare_groups(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b, std::size_t row,
                    Tally& tally) {
  const std::size_t group_bytes = std::lcm<std::size_t>(8, bits_of(dtype)) / 8;
  const std::uint64_t group_elements = group_bytes * 8 / bits_of(dtype);
  for (std::size_t at = 0; at < a.size(); at += group_bytes) {
    if (std::memcmp(&a[at], &b[at], group_bytes) != 0) tally.differing[row] += group_elements;
  }
}

/// Reads the same pieces of both and compares; collective through the loaders.
class PieceComparer {
 public:
  PieceComparer(const OpenCheckpoint& a, const OpenCheckpoint& b, TensorReader& load_a, TensorReader& load_b)
      : a_(a), b_(b), load_a_(load_a), load_b_(load_b) {}

  std::uint64_t compare(std::span<const Piece> pieces, Tally& tally) {
    const auto bytes_a = load(pieces, a_, load_a_, &Pair::a);
    const auto bytes_b = load(pieces, b_, load_b_, &Pair::b);
    std::uint64_t compared = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Pair& pair = *pieces[i].pair;
      const auto& tensor_a = a_.stored.tensors[pair.a];
      const auto& tensor_b = b_.stored.tensors[pair.b];
      compared += bytes_a[i].size();
      if (tensor_a.dtype == tensor_b.dtype && bytes_a[i] == bytes_b[i]) continue;
      if (has_values(tensor_a.dtype)) {
        compare_values(tensor_a, tensor_b, bytes_a[i], bytes_b[i], pair.row, tally);
      } else {
        compare_groups(tensor_a.dtype, bytes_a[i], bytes_b[i], pair.row, tally);
      }
    }
    return compared;
  }

 private:
  static std::vector<std::vector<std::byte>> load(std::span<const Piece> pieces, const OpenCheckpoint& checkpoint,
                                                  TensorReader& loader, std::uint32_t Pair::*number) {
    std::vector<std::vector<std::byte>> memory(pieces.size());
    std::vector<WantedBox> wanted;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::uint32_t tensor_number = pieces[i].pair->*number;
      const auto& tensor = checkpoint.stored.tensors[tensor_number];
      memory[i].resize((pieces[i].end - pieces[i].begin) * bits_of(tensor.dtype) / 8);
      std::uint64_t at = 0;
      for (Box& box : shard::boxes_of_flat_range(tensor.shape, pieces[i].begin, pieces[i].end)) {
        const std::uint64_t bytes = shard::elements_of(box) * bits_of(tensor.dtype) / 8;
        wanted.push_back({tensor_number, std::move(box), std::span(memory[i]).subspan(at, bytes)});
        at += bytes;
      }
    }
    loader.load(wanted);
    return memory;
  }

  const OpenCheckpoint& a_;
  const OpenCheckpoint& b_;
  TensorReader& load_a_;
  TensorReader& load_b_;
};

}  // namespace

bool DiffResult::equal() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorDiff& diff) { return diff.verdict == TensorVerdict::kEqual; });
}

DiffResult diff(comm::Communicator& communicator, const std::filesystem::path& path_a,
                const std::filesystem::path& path_b, const ReadOptions& options) {
  const OpenCheckpoint a = open_checkpoint(communicator, path_a);
  const OpenCheckpoint b = open_checkpoint(communicator, path_b);
  DiffResult result;
  const std::vector<Pair> pairs = pair_up(a, b, result);
  const auto load_a = make_reader(communicator, a, options);
  const auto load_b = make_reader(communicator, b, options);
  PieceComparer comparer(a, b, *load_a, *load_b);

  // A round's pieces of both checkpoints, and one decoded copy of each element as doubles, stay within the budget.
  const std::uint64_t round_elements = std::max<std::uint64_t>(options.memory_budget_bytes / 64 / 8 * 8, 8);
  const std::vector<Piece> pieces = share_of(pairs, communicator, round_elements);
  Tally tally{std::vector<std::uint64_t>(result.tensors.size(), 0), std::vector<double>(result.tensors.size(), 0)};
  std::uint64_t compared = 0;
  for (std::size_t at = 0; communicator.max(at < pieces.size() ? 1 : 0) != 0;) {
    std::size_t end = at;
    std::uint64_t elements = 0;
    while (end < pieces.size() && (end == at || elements + pieces[end].end - pieces[end].begin <= round_elements)) {
      elements += pieces[end].end - pieces[end].begin;
      ++end;
    }
    compared += comparer.compare(std::span(pieces).subspan(at, end - at), tally);
    at = end;
  }
  communicator.all_reduce(tally.differing, comm::ReduceOp::kSum);
  communicator.all_reduce(tally.max_difference, comm::ReduceOp::kMax);
  result.bytes_compared = communicator.sum(compared);
  for (const Pair& pair : pairs) {
    TensorDiff& row = result.tensors[pair.row];
    row.elements_differing = tally.differing[pair.row];
    if (has_values(a.stored.tensors[pair.a].dtype)) row.max_abs_difference = tally.max_difference[pair.row];
    if (row.verdict == TensorVerdict::kEqual && row.elements_differing != 0) row.verdict = TensorVerdict::kDiffers;
  }
  return result;
}

}  // namespace cairn::checkpoint
