#include "conversion/diff.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/progress.hpp"
#include "comm/agree.hpp"
#include "conversion/choice.hpp"
#include "conversion/stage_reader.hpp"
#include "conversion/window_ranges.hpp"
#include "os/fault.hpp"
#include "plan/catalog.hpp"
#include "shard/box_math.hpp"

namespace cairn::conversion {
namespace {

/// One of the two checkpoints.
struct Side {
  Side(comm::Communicator& communicator, const opening::Parts& where, const opening::Allowed& allowed)
      : opened(opening::open_checkpoint(communicator, where, allowed)) {}
  opening::OpenCheckpoint opened;
  codes::View view;
};

/// A tensor of both checkpoints, to be compared element by element.
struct Pair {
  std::size_t number = 0;  ///< among all pairs
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint64_t elements = 0;
  std::uint64_t step = 1;  ///< pieces begin at multiples of this number of elements
  DType dtype_a = DType::kF32;
  DType dtype_b = DType::kF32;
};

/// A flat range of a pair, small enough for memory.
struct Piece {
  const Pair* pair = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

constexpr std::uint32_t kNotThere = UINT32_MAX;

/// Calls visit(a, i, b, j) for every tensor of either checkpoint, in catalog order, with its numbers. Where a
/// checkpoint lacks the tensor, these are nullptr and kNotThere.
template <class Visit>
void for_each_tensor(const Side& side_a, const Side& side_b, const Visit& visit) {
  codes::ViewCursor a(side_a.opened, side_a.view);
  codes::ViewCursor b(side_b.opened, side_b.view);
  for (std::uint32_t i = 0, j = 0; i < a.size() || j < b.size();) {
    std::optional<codes::ViewTensor> x;
    std::optional<codes::ViewTensor> y;
    if (i < a.size()) x = a.at(i);
    if (j < b.size()) y = b.at(j);
    if (x && y && (x->name != y->name || x->section != y->section)) {
      if (plan::in_catalog_order(x->section, x->name, y->section, y->name)) {
        y.reset();
      } else {
        x.reset();
      }
    }
    visit(x ? &*x : nullptr, x ? i : kNotThere, y ? &*y : nullptr, y ? j : kNotThere);
    if (x) ++i;
    if (y) ++j;
  }
}

/// Counts the tensors of both checkpoints together in `result`. Returns the pairs whose elements can be compared.
std::vector<Pair> pair_up(const Side& side_a, const Side& side_b, DiffResult& result) {
  std::vector<Pair> pairs;
  pairs.reserve(std::min(codes::ViewCursor(side_a.opened, side_a.view).size(),
                         codes::ViewCursor(side_b.opened, side_b.view).size()));
  for_each_tensor(
      side_a, side_b, [&](const codes::ViewTensor* a, std::uint32_t i, const codes::ViewTensor* b, std::uint32_t j) {
        ++result.tensors;
        if (a == nullptr || b == nullptr || !std::ranges::equal(a->shape, b->shape)) return;
        if (a->dtype != b->dtype && !(has_values(a->dtype) && has_values(b->dtype))) return;
        pairs.push_back(
            {pairs.size(), i, j, shard::elements_of(a->shape), cut_step(a->dtype, a->shape), a->dtype, b->dtype});
      });
  return pairs;
}

/// Tensors of fewer elements are compared by one rank: every piece costs some microseconds, as much as thousands of
/// elements.
constexpr std::uint64_t kLeastShareElements = 1 << 14;

/// This rank's share of every pair, in pieces of at most `piece_elements`, or of one step.
std::vector<Piece> share_of(const std::vector<Pair>& pairs, comm::Communicator& communicator,
                            std::uint64_t piece_elements) {
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  const auto rank = static_cast<std::uint64_t>(communicator.rank());
  std::vector<Piece> pieces;
  for (const Pair& pair : pairs) {
    const std::uint64_t even = std::max(base::ceil_div(pair.elements, ranks), kLeastShareElements);
    const std::uint64_t share = base::round_up(even, std::lcm(8, pair.step));
    const std::uint64_t most = std::max(piece_elements / pair.step, std::uint64_t{1}) * pair.step;
    // A small tensor is compared by a single rank; the ranks take turns.
    const std::uint64_t turn = (rank + pair.number) % ranks;
    const std::uint64_t first = std::min(pair.elements, turn * share);
    const std::uint64_t last = std::min(pair.elements, first + share);
    for (std::uint64_t at = first; at < last; at += most) {
      pieces.push_back({&pair, at, std::min(at + most, last)});
    }
  }
  return pieces;
}

/// The findings about all pairs, by number.
struct Tally {
  explicit Tally(std::size_t pairs) : differing(pairs, 0), outside(pairs, 0), largest(pairs, 0) {}
  void add(std::size_t pair, const Findings& found) {
    differing[pair] += found.differing;
    outside[pair] += found.outside;
    largest[pair] = std::max(largest[pair], found.largest);
  }
  std::vector<std::uint64_t> differing;
  std::vector<std::uint64_t> outside;
  std::vector<std::uint64_t> largest;
};

/// Reads the same pieces of both checkpoints and compares them; collective, because the readers are.
class PieceComparer {
 public:
  /// A view and its reader.
  struct Input {
    const Side& side;
    checkpoint::TensorReader& reader;
    std::uint32_t Pair::*number;  ///< the tensor's number in the view
  };
  PieceComparer(comm::Communicator& communicator, Input a, Input b, const Tolerance& tolerance)
      : communicator_(communicator), a_(a), b_(b), tolerance_(tolerance) {}

  /// Collective, once: plans the rounds, each of at most `round_elements` elements of this rank's pieces, or one piece.
  void plan(std::span<const Piece> pieces, std::uint64_t round_elements) {
    comm::agree(communicator_, "share the elements", [&] {
      pieces_ = pieces;
      std::uint64_t elements = 0;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const std::uint64_t more = pieces[i].end - pieces[i].begin;
        if (elements != 0 && elements + more > round_elements) {
          ends_.push_back(i);
          elements = 0;
        }
        elements += more;
      }
      if (!pieces.empty()) ends_.push_back(pieces.size());
    });
    rounds_ = communicator_.max(ends_.size());
    for (const Input& input : {a_, b_}) {
      input.reader.begin(
          {rounds_, [this, input](std::uint64_t round) { return boxes_of(pieces_of(round), input, nullptr); }});
    }
  }
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }

  /// Collective, for each round in order. Returns the bytes of this rank's pieces of that round, in checkpoint a.
  std::uint64_t compare(std::uint64_t round, Tally& tally) {
    const std::span<const Piece> pieces = pieces_of(round);
    const auto bytes_a = load(pieces, a_);
    const auto bytes_b = load(pieces, b_);
    std::uint64_t compared = 0;
    comm::agree(communicator_, "compare the elements", [&] {
      os::fault_memory("memory.compare");
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Pair& pair = *pieces[i].pair;
        compared += bytes_a[i].size();
        if (pair.dtype_a == pair.dtype_b && bytes_a[i] == bytes_b[i]) continue;
        tally.add(pair.number, compare_elements({pair.dtype_a, pair.dtype_b, bytes_a[i], bytes_b[i]}, tolerance_));
      }
    });
    return compared;
  }

 private:
  /// The pieces' boxes in one of the checkpoints. `memory`: null to get boxes without memory, for planning.
  static std::vector<plan::MemoryBox> boxes_of(std::span<const Piece> pieces, const Input& input,
                                               std::vector<std::vector<std::byte>>* memory) {
    std::vector<plan::MemoryBox> boxes;
    codes::ViewCursor tensors(input.side.opened, input.side.view);
    for (const Piece& piece : pieces) {
      const std::uint32_t number = piece.pair->*input.number;
      const codes::ViewTensor tensor = tensors.at(number);
      std::span<std::byte> place;
      if (memory != nullptr) {
        memory->emplace_back((piece.end - piece.begin) * bits_of(tensor.dtype) / 8);
        place = memory->back();
      }
      for (Box& box : shard::boxes_of_flat_range(tensor.shape, piece.begin, piece.end)) {
        const std::uint64_t bytes = shard::elements_of(box) * bits_of(tensor.dtype) / 8;
        boxes.push_back({number, std::move(box), memory == nullptr ? place : place.first(bytes)});
        if (memory != nullptr) place = place.subspan(bytes);
      }
    }
    return boxes;
  }

  std::vector<std::vector<std::byte>> load(std::span<const Piece> pieces, const Input& input) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<plan::MemoryBox> wanted;
    comm::agree(communicator_, "make room for elements", [&] {
      os::fault_memory("memory.elements");
      wanted = boxes_of(pieces, input, &memory);
    });
    input.reader.load_next(wanted);
    return memory;
  }

  [[nodiscard]] std::span<const Piece> pieces_of(std::uint64_t round) const {
    if (round >= ends_.size()) return {};
    const std::size_t begin = round == 0 ? 0 : ends_[round - 1];
    return pieces_.subspan(begin, ends_[round] - begin);
  }

  comm::Communicator& communicator_;
  Input a_;
  Input b_;
  Tolerance tolerance_;
  std::span<const Piece> pieces_;
  std::vector<std::size_t> ends_;  ///< for each round, the end of this rank's pieces
  std::uint64_t rounds_ = 0;       ///< number of rounds of the rank that has the most
};

TensorDiff compare_heads(const codes::ViewTensor* a, const codes::ViewTensor* b) {
  const codes::ViewTensor& either = a != nullptr ? *a : *b;
  TensorDiff diff;
  diff.section = either.section;
  diff.name = either.name;
  diff.elements = shard::elements_of(either.shape);
  if (a == nullptr || b == nullptr) {
    diff.verdict = a != nullptr ? TensorVerdict::kOnlyInA : TensorVerdict::kOnlyInB;
  } else if (!std::ranges::equal(a->shape, b->shape)) {
    diff.verdict = TensorVerdict::kOtherShape;
    diff.detail = fmt::format("[{}] against [{}]", base::joined(a->shape), base::joined(b->shape));
  } else if (a->dtype != b->dtype) {
    diff.verdict = TensorVerdict::kOtherDtype;
    diff.detail = fmt::format("{} against {}", name_of(a->dtype), name_of(b->dtype));
  }
  return diff;
}

/// Adds the findings about a pair, and the verdict if only elements differ.
void judge(const Pair& pair, const Tally& tally, const Tolerance& tolerance, TensorDiff& row) {
  row.rule = rule_of(pair.dtype_a, pair.dtype_b);
  row.elements_differing = tally.differing[pair.number];
  row.elements_outside = tally.outside[pair.number];
  if (has_values(pair.dtype_a)) {
    row.max_abs_difference = difference_of(tally.largest[pair.number], pair.dtype_a, pair.dtype_b);
  }
  if (row.verdict == TensorVerdict::kOtherDtype) return;
  const bool is_close = !tolerance.is_none() && row.elements_outside == 0;
  row.verdict = is_close ? TensorVerdict::kClose : TensorVerdict::kDiffers;
}

/// The tensors that are not equal. There may be 100,000 that are: they get no row.
std::vector<TensorDiff> differences_of(const Side& side_a, const Side& side_b, std::span<const Pair> pairs,
                                       const Tally& tally, const Tolerance& tolerance) {
  std::vector<TensorDiff> rows;
  for_each_tensor(side_a, side_b,
                  [&](const codes::ViewTensor* a, std::uint32_t i, const codes::ViewTensor* b, std::uint32_t j) {
                    const bool is_pair = !pairs.empty() && pairs.front().a == i && pairs.front().b == j;
                    if (!is_pair) return rows.push_back(compare_heads(a, b));
                    const Pair& pair = pairs.front();
                    pairs = pairs.subspan(1);
                    if (pair.dtype_a == pair.dtype_b && tally.differing[pair.number] == 0) return;
                    judge(pair, tally, tolerance, rows.emplace_back(compare_heads(a, b)));
                  });
  return rows;
}

void check_tolerance(const Tolerance& tolerance) {
  for (const long double value : {static_cast<long double>(tolerance.relative), tolerance.absolute}) {
    if (std::isfinite(value) && value >= 0) continue;
    throw Error(ErrorKind::kUsage, fmt::format("a tolerance of {}; expected 0 or a positive number", value));
  }
}

/// Collective: compares the opened checkpoints.
DiffResult compare(comm::Communicator& communicator, Side& a, Side& b, const DiffOptions& options) {
  DiffResult result;
  std::vector<Pair> pairs;
  comm::agree(communicator, "pair up the tensors", [&] {
    if (options.decode_by_reciprocals) refuse_idle_reciprocals({&a.opened, &b.opened});
    for (Side* side : {&a, &b}) side->view = codes::loading_view(side->opened, {options.decode_by_reciprocals, false});
    pairs = pair_up(a, b, result);
  });
  const auto load_a = make_reader(communicator, a.opened, a.view, options.read);
  const auto load_b = make_reader(communicator, b.opened, b.view, options.read);
  PieceComparer comparer(communicator, {a, *load_a, &Pair::a}, {b, *load_b, &Pair::b}, options.tolerance);

  // A round's pieces of both checkpoints, and their elements as doubles, stay within the budget.
  const std::uint64_t round_elements = std::max<std::uint64_t>(options.read.memory_budget_bytes / 64 / 8 * 8, 8);
  std::vector<Piece> pieces;
  std::optional<Tally> room;
  comm::agree(communicator, "share the elements", [&] {
    os::fault_memory("memory.diff");
    pieces = share_of(pairs, communicator, round_elements);
    room.emplace(pairs.size());
  });
  Tally& tally = *room;
  std::uint64_t compared = 0;
  std::uint64_t total = 0;  // bytes of this rank's pieces in the first checkpoint
  for (const Piece& piece : pieces) {
    total += (piece.end - piece.begin) * bits_of(piece.pair->dtype_a) / 8;
  }
  try {
    comparer.plan(pieces, round_elements);
    for (std::uint64_t round = 0; round < comparer.rounds(); ++round) {
      checkpoint::report_progress("comparing", compared, total);
      const checkpoint::QuietProgress quiet;
      compared += comparer.compare(round, tally);
    }
  } catch (const comm::AgreedError&) {  // all ranks reach this
    load_a->close_after_error();
    load_b->close_after_error();
    throw;
  }
  checkpoint::report_progress("comparing", total, total);
  communicator.all_reduce(tally.differing, comm::ReduceOp::kSum);
  communicator.all_reduce(tally.outside, comm::ReduceOp::kSum);
  communicator.all_reduce(tally.largest, comm::ReduceOp::kMax);
  result.bytes_compared = communicator.sum(compared);
  comm::agree(communicator, "list the differences",
              [&] { result.differences = differences_of(a, b, pairs, tally, options.tolerance); });
  return result;
}

}  // namespace

bool DiffResult::close() const {
  return std::ranges::all_of(differences, [](const TensorDiff& diff) { return diff.verdict == TensorVerdict::kClose; });
}

DiffResult diff(comm::Communicator& communicator, const opening::Parts& where_a, const opening::Parts& where_b,
                const DiffOptions& options) {
  comm::agree(communicator, "check the tolerance", [&] { check_tolerance(options.tolerance); });
  for (int attempt = 1;; ++attempt) {
    Side a(communicator, where_a, options.read.allowed);
    Side b(communicator, where_b, options.read.allowed);
    try {
      return compare(communicator, a, b, options);
    } catch (const comm::AgreedError& error) {
      if (attempt == opening::kLoadAttempts) throw;
      if (!opening::was_replaced(communicator, a.opened, error) &&
          !opening::was_replaced(communicator, b.opened, error))
        throw;
    }
  }
}

}  // namespace cairn::conversion
