#include "conversion/diff.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/progress.hpp"
#include "comm/agree.hpp"
#include "conversion/stage_reader.hpp"
#include "conversion/window_ranges.hpp"
#include "os/fault.hpp"
#include "plan/catalog.hpp"
#include "shard/box_math.hpp"

namespace cairn::conversion {
namespace {

/// One of the two checkpoints.
struct Side {
  Side(comm::Communicator& communicator, const opening::Parts& where, opening::Links links)
      : opened(opening::open_checkpoint(communicator, where, links)) {}
  opening::OpenCheckpoint opened;
  codes::View view;
};

/// A tensor of both checkpoints, to be compared element by element.
struct Pair {
  std::size_t row = 0;  ///< index into DiffResult::tensors
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

TensorDiff compare_heads(const codes::ViewTensor& a, const codes::ViewTensor& b) {
  TensorDiff diff;
  diff.section = a.section;
  diff.name = a.name;
  diff.elements = shard::elements_of(a.shape);
  if (!std::ranges::equal(a.shape, b.shape)) {
    diff.verdict = TensorVerdict::kOtherShape;
    diff.detail = fmt::format("[{}] against [{}]", base::joined(a.shape), base::joined(b.shape));
  } else if (a.dtype != b.dtype) {
    diff.verdict = TensorVerdict::kOtherDtype;
    diff.detail = fmt::format("{} against {}", name_of(a.dtype), name_of(b.dtype));
  }
  return diff;
}

TensorDiff only_in(const codes::ViewTensor& tensor, TensorVerdict verdict) {
  TensorDiff diff;
  diff.section = tensor.section;
  diff.name = tensor.name;
  diff.verdict = verdict;
  diff.elements = shard::elements_of(tensor.shape);
  return diff;
}

/// Adds a row for each tensor to `result`, in catalog order. Returns the pairs whose elements can be compared.
std::vector<Pair> pair_up(const Side& side_a, const Side& side_b, DiffResult& result) {
  codes::ViewCursor a(side_a.opened, side_a.view);
  codes::ViewCursor b(side_b.opened, side_b.view);
  const auto before = [](const codes::ViewTensor& x, const codes::ViewTensor& y) {
    return plan::in_catalog_order(x.section, x.name, y.section, y.name);
  };
  std::vector<Pair> pairs;
  // With 100,000 rows and more, a growing list would hold them twice.
  result.tensors.reserve(std::max(a.size(), b.size()));
  pairs.reserve(std::min(a.size(), b.size()));
  for (std::uint32_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool only_a = j == b.size() || (i < a.size() && before(a.at(i), b.at(j)));
    const bool only_b = !only_a && (i == a.size() || before(b.at(j), a.at(i)));
    if (only_a) {
      result.tensors.push_back(only_in(a.at(i++), TensorVerdict::kOnlyInA));
    } else if (only_b) {
      result.tensors.push_back(only_in(b.at(j++), TensorVerdict::kOnlyInB));
    } else {
      const codes::ViewTensor tensor_a = a.at(i);
      const codes::ViewTensor tensor_b = b.at(j);
      result.tensors.push_back(compare_heads(tensor_a, tensor_b));
      const TensorDiff& row = result.tensors.back();
      const bool values = has_values(tensor_a.dtype) && has_values(tensor_b.dtype);
      const bool comparable =
          row.verdict == TensorVerdict::kEqual || (row.verdict == TensorVerdict::kOtherDtype && values);
      if (comparable) {
        pairs.push_back({result.tensors.size() - 1, i, j, row.elements, cut_step(tensor_a.dtype, tensor_a.shape),
                         tensor_a.dtype, tensor_b.dtype});
      }
      ++i;
      ++j;
    }
  }
  return pairs;
}

/// This rank's share of every pair, in pieces of at most `piece_elements`, or of one step.
std::vector<Piece> share_of(const std::vector<Pair>& pairs, comm::Communicator& communicator,
                            std::uint64_t piece_elements) {
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  const auto rank = static_cast<std::uint64_t>(communicator.rank());
  std::vector<Piece> pieces;
  for (const Pair& pair : pairs) {
    const std::uint64_t share = base::round_up(base::ceil_div(pair.elements, ranks), std::lcm(8, pair.step));
    const std::uint64_t most = std::max(piece_elements / pair.step, std::uint64_t{1}) * pair.step;
    // A small tensor is compared by a single rank; the ranks take turns.
    const std::uint64_t turn = (rank + pair.row) % ranks;
    const std::uint64_t first = std::min(pair.elements, turn * share);
    const std::uint64_t last = std::min(pair.elements, first + share);
    for (std::uint64_t at = first; at < last; at += most) {
      pieces.push_back({&pair, at, std::min(at + most, last)});
    }
  }
  return pieces;
}

/// The findings about all tensors, by row of the result.
struct Tally {
  explicit Tally(std::size_t tensors) : differing(tensors, 0), outside(tensors, 0), largest(tensors, 0) {}
  void add(std::size_t row, const Findings& found) {
    differing[row] += found.differing;
    outside[row] += found.outside;
    largest[row] = std::max(largest[row], found.largest);
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
        tally.add(pair.row, compare_elements({pair.dtype_a, pair.dtype_b, bytes_a[i], bytes_b[i]}, tolerance_));
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

/// Turns the tally into verdicts on the compared tensors.
void judge(const std::vector<Pair>& pairs, const Tally& tally, const Tolerance& tolerance, DiffResult& result) {
  for (const Pair& pair : pairs) {
    TensorDiff& row = result.tensors[pair.row];
    row.rule = rule_of(pair.dtype_a, pair.dtype_b);
    row.elements_differing = tally.differing[pair.row];
    row.elements_outside = tally.outside[pair.row];
    if (has_values(pair.dtype_a)) {
      row.max_abs_difference = difference_of(tally.largest[pair.row], pair.dtype_a, pair.dtype_b);
    }
    if (row.verdict != TensorVerdict::kEqual || row.elements_differing == 0) continue;
    const bool is_close = !tolerance.is_none() && row.elements_outside == 0;
    row.verdict = is_close ? TensorVerdict::kClose : TensorVerdict::kDiffers;
  }
}

void check_tolerance(const Tolerance& tolerance) {
  for (const double value : {tolerance.relative, tolerance.absolute}) {
    if (std::isfinite(value) && value >= 0) continue;
    throw Error(ErrorKind::kUsage, fmt::format("a tolerance of {}; expected 0 or a positive number", value));
  }
}

/// Collective: compares the opened checkpoints.
DiffResult compare(comm::Communicator& communicator, Side& a, Side& b, const DiffOptions& options) {
  DiffResult result;
  std::vector<Pair> pairs;
  comm::agree(communicator, "pair up the tensors", [&] {
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
    room.emplace(result.tensors.size());
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
  judge(pairs, tally, options.tolerance, result);
  return result;
}

}  // namespace

bool DiffResult::equal() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorDiff& diff) { return diff.verdict == TensorVerdict::kEqual; });
}

bool DiffResult::close() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const TensorDiff& diff) {
    return diff.verdict == TensorVerdict::kEqual || diff.verdict == TensorVerdict::kClose;
  });
}

DiffResult diff(comm::Communicator& communicator, const opening::Parts& where_a, const opening::Parts& where_b,
                const DiffOptions& options) {
  comm::agree(communicator, "check the tolerance", [&] { check_tolerance(options.tolerance); });
  for (int attempt = 1;; ++attempt) {
    Side a(communicator, where_a, options.read.links);
    Side b(communicator, where_b, options.read.links);
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
