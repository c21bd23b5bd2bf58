// Exchange of scales that several ranks share, and of split blocks.
#include "codes/coding_exchange.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/messages.hpp"
#include "planning/claim_steps.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {
namespace {

/// A tensor at its home.
struct HomeTensor {
  CodedTensor tensor;
  quant::Statistics statistics;  ///< statistics of the whole tensor
};

void put_values(comm::MessageWriter& out, const quant::Statistics& statistics) {
  for (const auto& array : statistics.arrays) out.raw(array.values.data(), array.values.size() * sizeof(float));
}

void get_values(comm::MessageReader& in, quant::Statistics& statistics) {
  for (auto& array : statistics.arrays) {
    const auto bytes = in.raw(array.values.size() * sizeof(float));
    std::memcpy(array.values.data(), bytes.data(), bytes.size());
  }
}

/// Reads the next box of a message and its statistics.
quant::Statistics get_statistics(comm::MessageReader& in, const CodedTensor& tensor) {
  Box box;
  box.offset = in.u64s();
  box.shape = in.u64s();
  quant::Statistics statistics = tensor.codec->no_statistics(tensor.source.shape, box);
  get_values(in, statistics);
  return statistics;
}

/// Merges the statistics of all ranks. Returns to each rank the statistics of its pieces, in the order of the pieces.
comm::Messages bring_together(const CodingPlan& plan, const comm::Messages& found,
                              std::map<std::uint32_t, HomeTensor>& home) {
  std::vector<std::vector<std::pair<std::uint32_t, quant::Statistics>>> asked(found.size());
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    comm::MessageReader in(found[rank]);
    while (!in.done()) {
      const auto number = static_cast<std::uint32_t>(in.u64());
      auto at = home.find(number);
      if (at == home.end()) {
        CodedTensor tensor = plan.tensor(number);
        const Box whole = shard::whole(tensor.source.shape);
        quant::Statistics none = tensor.codec->no_statistics(tensor.source.shape, whole);
        at = home.emplace(number, HomeTensor{std::move(tensor), std::move(none)}).first;
      }
      asked[rank].emplace_back(number, get_statistics(in, at->second.tensor));
      quant::merge(at->second.statistics, asked[rank].back().second);
    }
  }
  comm::MessageWriter answers(found.size());
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    for (auto& [number, statistics] : asked[rank]) {
      quant::merge(statistics, home.at(number).statistics);  // minima and maxima: merging twice changes nothing
      put_values(answers, statistics);
      answers.close(rank);
    }
  }
  return answers.take();
}

void add_scales(std::uint32_t number, const HomeTensor& home, std::vector<CodedPiece>& out) {
  const CodedTensor& tensor = home.tensor;
  const Box whole = shard::whole(tensor.source.shape);
  std::vector<base::Bytes> bytes(tensor.parts.size());
  std::vector<std::span<std::byte>> spans;
  std::vector<Box> boxes;
  for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
    boxes.push_back(tensor.codec->part_box(tensor.source.shape, p, whole));
    if (tensor.parts[p].role == quant::Role::kScales) bytes[p].resize(quant::bytes_of(tensor.parts[p], boxes[p]));
    spans.emplace_back(bytes[p]);
  }
  tensor.codec->store_scales(tensor.source, whole, home.statistics, spans);
  for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
    if (tensor.parts[p].role == quant::Role::kScales) out.push_back({number, p, {boxes[p]}, std::move(bytes[p])});
  }
}

}  // namespace

std::vector<CodedPiece> exchange_scales(comm::Communicator& communicator, const CodingPlan& plan,
                                        std::span<MeasuredPiece> pieces) {
  const int ranks = communicator.size();
  comm::Messages messages;
  comm::agree(communicator, "send what was measured", [&] {
    comm::MessageWriter out(static_cast<std::size_t>(ranks));
    for (const MeasuredPiece& piece : pieces) {
      out.u64(piece.tensor);
      out.u64s(piece.box.offset);
      out.u64s(piece.box.shape);
      put_values(out, piece.statistics);
      out.close(static_cast<std::size_t>(planning::home_of(piece.tensor, ranks)));
    }
    messages = out.take();
  });
  messages = communicator.all_to_all(std::move(messages));
  std::map<std::uint32_t, HomeTensor> home;
  comm::agree(communicator, "bring the scales together", [&] { messages = bring_together(plan, messages, home); });
  messages = communicator.all_to_all(std::move(messages));
  std::vector<CodedPiece> scales;
  comm::agree(communicator, "collect the scales", [&] {
    std::vector<comm::MessageReader> from(messages.begin(), messages.end());
    for (MeasuredPiece& piece : pieces) {
      get_values(from.at(static_cast<std::size_t>(planning::home_of(piece.tensor, ranks))), piece.statistics);
    }
    for (const auto& [number, tensor] : home) add_scales(number, tensor, scales);
  });
  return scales;
}

namespace {

constexpr std::uint64_t kRoundBytes = 16ULL << 20;  ///< approximate bytes that a rank sends in a round
constexpr std::uint64_t kCopiedBytes = 1ULL << 20;  ///< bytes of a moment that are copied from a device at a time
constexpr std::uint64_t kHomeRows = 64;
constexpr std::uint64_t kHomeBlocks = 1024;

/// The blocks of a tensor, numbered through the flattened tensor. If rows are whole blocks, a row has `row_blocks`.
struct BlockGrid {
  explicit BlockGrid(const CodedTensor& tensor)
      : shape(tensor.source.shape),
        step(tensor.codec->traits().block_elements),
        in_rows(tensor.codec->view(shape) == shape),
        row_blocks(in_rows ? shape.back() / step : 1) {}

  [[nodiscard]] std::size_t home_of(std::uint32_t tensor, std::uint64_t block, std::size_t ranks) const {
    const std::uint64_t group = in_rows ? block / row_blocks / kHomeRows : block / kHomeBlocks;
    return (tensor * 0x9E3779B97F4A7C15ULL + group) % ranks;
  }
  /// The first block after `block` that can have a different home.
  [[nodiscard]] std::uint64_t next_group(std::uint64_t block) const {
    const std::uint64_t length = in_rows ? row_blocks * kHomeRows : kHomeBlocks;
    return (block / length + 1) * length;
  }
  [[nodiscard]] std::uint64_t elements_of(std::uint64_t block) const {
    return std::min(step, shard::elements_of(shape) - block * step);
  }
  /// The block as a box of the view.
  [[nodiscard]] Box box_of(std::uint64_t block) const {
    if (!in_rows) return {{block * step}, {elements_of(block)}};
    Box box{quant::position_of(shard::whole(shape), block * step), std::vector<std::uint64_t>(shape.size(), 1)};
    box.shape.back() = step;
    return box;
  }

  quant::Shape shape;
  std::uint64_t step;
  bool in_rows;
  std::uint64_t row_blocks;
};

/// Rows of one moment of a piece, on the host: in place, or consecutive rows copied from a device.
class SplitRows {
 public:
  explicit SplitRows(DeviceMemory& device) : device_(device) {}

  /// Requires: calls for a piece come in ascending order of rows, and all pass the same Piece object.
  std::span<const std::byte> row(const plan::Piece& piece, const plan::MemoryBox& box, std::uint64_t number) {
    if (&piece != piece_) {
      piece_ = &piece;
      runs_ = plan::runs_of(DType::kF32, {0, 0, piece.box}, box, piece.box);
      copied_.clear();
    }
    const std::uint64_t row_bytes = piece.box.shape.back() * sizeof(float);
    const std::uint64_t at = number * row_bytes;
    if (!plan::is_on_device(box)) {
      return box.bytes.subspan(plan::RunCursor(runs_, at, row_bytes).next().memory_offset, row_bytes);
    }
    if (copied_.empty() || at >= first_ + copied_.size()) {
      first_ = at;
      copied_.resize(std::min(std::max(kCopiedBytes / row_bytes, std::uint64_t{1}) * row_bytes, runs_.bytes - at));
      device_.copy_to_host(box, runs_, first_, copied_);
    }
    return std::span(copied_).subspan(at - first_, row_bytes);
  }

 private:
  DeviceMemory& device_;
  const plan::Piece* piece_ = nullptr;
  plan::Runs runs_;
  std::uint64_t first_ = 0;  // offset of `copied_` in the piece
  base::Bytes copied_;
};

/// Walks the rows of this rank's split pieces and sends their elements to the homes of the blocks.
class SplitSender {
 public:
  SplitSender(const CodingPlan& plan, const SplitMemory& memory, std::size_t ranks)
      : plan_(plan), memory_(memory.boxes), ranks_(ranks), first_(memory.device), second_(memory.device) {}

  [[nodiscard]] bool done() const { return piece_ == plan_.pieces.split.size(); }

  /// The next round's messages.
  comm::Messages next() {
    comm::MessageWriter out(ranks_);
    std::uint64_t bytes = 0;
    while (!done() && bytes < kRoundBytes) {
      const plan::Piece& piece = plan_.pieces.split[piece_];
      const BlockGrid grid(plan_.tensor(piece.tensor));
      const std::uint64_t length = piece.box.shape.back();
      const std::uint64_t rows = shard::elements_of(piece.box) / length;
      for (; row_ < rows && bytes < kRoundBytes; ++row_) {
        send_row(piece, grid, out);
        bytes += 2 * sizeof(float) * length;
      }
      if (row_ < rows) break;
      row_ = 0;
      ++piece_;
    }
    return out.take();
  }

 private:
  void send_row(const plan::Piece& piece, const BlockGrid& grid, comm::MessageWriter& out) {
    const std::span<const std::byte> first = first_.row(piece, memory_.first[piece.local], row_);
    const std::span<const std::byte> second = second_.row(piece, memory_.second[piece.local], row_);
    const std::uint64_t length = piece.box.shape.back();
    std::uint64_t at = 0;
    const std::uint64_t begin = shard::flat_index(grid.shape, quant::position_of(piece.box, row_ * length));
    const std::uint64_t end = begin + length;
    for (std::uint64_t from = begin; from < end;) {
      const std::uint64_t to = std::min(end, grid.next_group(from / grid.step) * grid.step);
      const std::uint64_t bytes = (to - from) * sizeof(float);
      out.u64(piece.tensor);
      out.u64(from);
      out.u64(to - from);
      out.raw(first.data() + at, bytes);
      out.raw(second.data() + at, bytes);
      out.close(grid.home_of(piece.tensor, from / grid.step, ranks_));
      at += bytes;
      from = to;
    }
  }

  const CodingPlan& plan_;
  const MomentBoxes& memory_;
  std::size_t ranks_;
  SplitRows first_;
  SplitRows second_;
  std::size_t piece_ = 0;
  std::uint64_t row_ = 0;
};

/// The blocks of one tensor at their home.
class SplitTensor {
 public:
  explicit SplitTensor(CodedTensor tensor) : tensor_(std::move(tensor)), grid_(tensor_) {}

  void take(std::uint64_t from, std::span<const std::byte> m, std::span<const std::byte> v, Measuring measuring,
            quant::TensorErrors& errors) {
    const std::uint64_t end = from + m.size() / sizeof(float);
    std::size_t at = 0;
    while (from < end) {
      const std::uint64_t number = from / grid_.step;
      const std::uint64_t count = std::min(end, (number + 1) * grid_.step) - from;
      Block& block = blocks_[number];
      const std::uint64_t elements = grid_.elements_of(number);
      block.m.resize(elements);
      block.v.resize(elements);
      std::memcpy(&block.m[from % grid_.step], m.data() + at, count * sizeof(float));
      std::memcpy(&block.v[from % grid_.step], v.data() + at, count * sizeof(float));
      block.filled += count;
      if (block.filled == elements) code(number, block, measuring, errors);
      from += count;
      at += count * sizeof(float);
    }
  }

  /// The codes in as few boxes as possible.
  CodedPiece finish(std::uint32_t number) {
    CodedPiece piece;
    piece.tensor = number;
    std::vector<std::uint64_t> order;
    for (const auto& [block, content] : blocks_) {
      if (content.codes.empty()) {
        throw base::internal_error(fmt::format("block {} of '{}' is not whole: {} of {} elements came", block,
                                               base::printable(tensor_.source.name), content.filled,
                                               grid_.elements_of(block)));
      }
      order.push_back(block);
    }
    const auto column = [&](std::uint64_t block) { return grid_.in_rows ? block % grid_.row_blocks : 0; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint64_t a, std::uint64_t b) { return column(a) < column(b); });
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin + 1;
      while (end < order.size() && order[end] == order[end - 1] + grid_.row_blocks) ++end;
      add_boxes(order[begin], end - begin, piece.boxes);
      for (; begin < end; ++begin) {
        const base::Bytes& codes = blocks_[order[begin]].codes;
        piece.bytes.insert(piece.bytes.end(), codes.begin(), codes.end());
      }
    }
    return piece;
  }

 private:
  struct Block {
    std::uint64_t filled = 0;
    std::vector<float> m;
    std::vector<float> v;
    base::Bytes codes;
  };

  void code(std::uint64_t number, Block& block, Measuring measuring, quant::TensorErrors& errors) const {
    const Box box = grid_.box_of(number);
    block.codes.resize(quant::bytes_of(tensor_.parts[0], tensor_.codec->part_box(grid_.shape, 0, box)));
    const std::vector<std::span<std::byte>> out = {block.codes};
    tensor_.codec->encode(tensor_.source, box, {block.m, block.v}, {}, out);
    measure_errors(measuring, {*tensor_.codec, tensor_.source, box, {block.m, block.v}, out}, errors);
    block.m = {};
    block.v = {};
  }

  /// Adds `count` blocks in consecutive rows (or consecutive blocks of a flattened tensor) as boxes of the part.
  void add_boxes(std::uint64_t block, std::uint64_t count, std::vector<Box>& out) const {
    const std::uint64_t block_bytes = tensor_.parts[0].shape.back();
    if (!grid_.in_rows) {
      out.push_back({{block, 0}, {count, block_bytes}});
      return;
    }
    const quant::Shape rows(grid_.shape.begin(), grid_.shape.end() - 1);
    const std::uint64_t row = block / grid_.row_blocks;
    for (Box& box : shard::boxes_of_flat_range(rows, row, row + count)) {
      box.offset.insert(box.offset.end(), {block % grid_.row_blocks, 0});
      box.shape.insert(box.shape.end(), {1, block_bytes});
      out.push_back(std::move(box));
    }
  }

  CodedTensor tensor_;
  BlockGrid grid_;
  std::map<std::uint64_t, Block> blocks_;
};

}  // namespace

std::vector<CodedPiece> code_split_blocks(comm::Communicator& communicator, const CodingPlan& plan,
                                          const SplitMemory& memory, Measuring measuring, ErrorsByTensor& errors) {
  SplitSender sender(plan, memory, static_cast<std::size_t>(communicator.size()));
  std::map<std::uint32_t, SplitTensor> home;
  while (communicator.max(sender.done() ? 0 : 1) != 0) {
    comm::Messages messages;
    comm::agree(communicator, "send parts of blocks", [&] { messages = sender.next(); });
    messages = communicator.all_to_all(std::move(messages));
    comm::agree(communicator, "code blocks", [&] {
      for (const base::Bytes& message : messages) {
        comm::MessageReader in(message);
        while (!in.done()) {
          const auto tensor = static_cast<std::uint32_t>(in.u64());
          const std::uint64_t from = in.u64();
          const std::uint64_t bytes = in.u64() * sizeof(float);
          const auto m = in.raw(bytes);
          const auto v = in.raw(bytes);
          auto at = home.find(tensor);
          if (at == home.end()) at = home.emplace(tensor, SplitTensor(plan.tensor(tensor))).first;
          at->second.take(from, m, v, measuring, errors[tensor]);
        }
      }
    });
  }
  std::vector<CodedPiece> pieces;
  comm::agree(communicator, "collect blocks", [&] {
    for (auto& [number, tensor] : home) pieces.push_back(tensor.finish(number));
  });
  return pieces;
}

}  // namespace cairn::codes
