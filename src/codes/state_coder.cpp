#include "codes/state_coder.hpp"

#include <algorithm>
#include <utility>

#include "codes/coding_exchange.hpp"
#include "comm/agree.hpp"
#include "format/stored_checkpoint.hpp"
#include "quant/codec.hpp"

namespace cairn::codes {
namespace {

/// One call of StateCoder::code().
class Coding {
 public:
  Coding(comm::Communicator& communicator, const CodingPlan& plan, std::span<const Source> state, Measuring measuring)
      : communicator_(communicator), plan_(plan), measuring_(measuring) {
    comm::agree(communicator_, "look at the moments", [&] { memory_ = moment_boxes(plan_.sorted, state); });
  }

  std::vector<CodedPiece> run() {
    comm::agree(communicator_, "code the moments", [&] {
      for (const plan::Piece& piece : plan_.pieces.own) {
        const CodedTensor tensor = plan_.tensor(piece.tensor);
        if (!has_scales(*tensor.codec)) add_codes(piece, tensor, {});
      }
    });
    std::uint32_t begin = 0;
    for (const std::uint32_t end : plan_.scale_batches) {
      code_with_scales(begin, end);
      begin = end;
    }
    auto split = code_split_blocks(communicator_, plan_, {memory_, device_}, measuring_, errors_);
    std::move(split.begin(), split.end(), std::back_inserter(pieces_));
    return std::move(pieces_);
  }

  [[nodiscard]] const ErrorsByTensor& errors() const { return errors_; }

 private:
  [[nodiscard]] PieceMemory memory_of(const plan::Piece& piece) {
    return {memory_.first[piece.local], memory_.second[piece.local], device_};
  }

  void add_codes(const plan::Piece& piece, const CodedTensor& tensor, const quant::Statistics& statistics) {
    auto bytes = encode_piece(tensor, piece.box, memory_of(piece), statistics, measuring_, errors_[piece.tensor]);
    for (std::size_t p = 0; p < bytes.size(); ++p) {
      if (tensor.parts[p].role == quant::Role::kScales) continue;
      const Box box = tensor.codec->part_box(tensor.source.shape, p, piece.box);
      pieces_.push_back({piece.tensor, p, {box}, std::move(bytes[p])});
    }
  }

  /// Codes the tensors in [begin, end) that have separate scales, which several ranks can share.
  void code_with_scales(std::uint32_t begin, std::uint32_t end) {
    std::vector<const plan::Piece*> mine;
    std::vector<MeasuredPiece> measured;
    comm::agree(communicator_, "measure the moments", [&] {
      for (const plan::Piece& piece : plan_.pieces.own) {
        if (piece.tensor < begin || piece.tensor >= end) continue;
        const CodedTensor tensor = plan_.tensor(piece.tensor);
        if (!has_scales(*tensor.codec)) continue;
        mine.push_back(&piece);
        measured.push_back({piece.tensor, piece.box, measure_piece(tensor, piece.box, memory_of(piece))});
      }
    });
    auto scales = exchange_scales(communicator_, plan_, measured);
    std::move(scales.begin(), scales.end(), std::back_inserter(pieces_));
    comm::agree(communicator_, "code the moments", [&] {
      for (std::size_t i = 0; i < mine.size(); ++i) {
        add_codes(*mine[i], plan_.tensor(mine[i]->tensor), measured[i].statistics);
      }
    });
  }

  comm::Communicator& communicator_;
  const CodingPlan& plan_;
  Measuring measuring_;
  MomentBoxes memory_;
  DeviceMemory device_;
  ErrorsByTensor errors_;
  std::vector<CodedPiece> pieces_;
};

/// Adds each piece to the state as a source that points to the piece's bytes. Sources of a first part have a coding.
void add_sources(const CodingPlan& plan, CodedState& state) {
  for (const CodedPiece& piece : state.pieces) {
    const CodedTensor tensor = plan.tensor(piece.tensor);
    const quant::Part& part = tensor.parts[piece.part];
    Source source;
    source.section = tensor.section;
    source.name = quant::stored_name(part, tensor.names);
    source.dtype = part.dtype;
    source.shape = part.shape;
    source.boxes = piece.boxes;
    source.data = piece.bytes.data();
    state.sources.push_back(std::move(source));
    state.codings.push_back(piece.part == 0 ? format::encode_coding(coding_of(tensor)) : "");
  }
}

}  // namespace

bool StateCoder::is_needed(const Quantisation& options) {
  const bool has_codec =
      std::any_of(options.codecs.begin(), options.codecs.end(), [](const auto& item) { return item.second != "off"; });
  return (has_codec && !options.disable_ckpt_quant) || options.remove_master_weight || options.skip_save_model_weight;
}

CodedState StateCoder::code(comm::Communicator& communicator, std::span<const Source> state,
                            const Quantisation& options, bool is_known) {
  if (!is_known) {
    plan_.reset();
    kept_ = elide(communicator, state, options);
  }
  std::vector<Source> some;
  if (kept_.numbers.size() != state.size()) {
    for (const std::uint32_t number : kept_.numbers) some.push_back(state[number]);
    state = some;
  }
  CodedState coded;
  if (!plan_) {
    plan_ = make_coding_plan(communicator, state, options);
    comm::agree(communicator, "note warnings", [&] {
      coded.warnings = plan_->idle;
      if (!kept_.idle.empty()) coded.warnings.push_back(kept_.idle);
    });
  }
  for (const std::uint32_t number : plan_->sorted.rest) coded.sources.push_back(state[number]);
  coded.codings.resize(coded.sources.size());
  if (plan_->firsts.size() == 0) return coded;
  Coding coding(communicator, *plan_, state, measuring_of(options));
  coded.pieces = coding.run();
  add_sources(*plan_, coded);
  coded.errors = collect_errors(
      communicator, [&](std::uint32_t number) { return plan_->tensor(number); }, coding.errors(), options);
  return coded;
}

std::vector<MomentReplica> StateCoder::replicas(std::span<const Source> state) const {
  if (!has_replicas()) return {};
  std::vector<Source> kept;
  for (const std::uint32_t number : kept_.numbers) kept.push_back(state[number]);
  MomentBoxes boxes = moment_boxes(plan_->sorted, kept);
  std::vector<MomentReplica> replicas;
  for (const plan::Replica& replica : plan_->replicas) {
    plan::MemoryBox& first = boxes.first[replica.local];
    const MomentPair& pair = plan_->sorted.pairs[first.tensor];
    const std::uint64_t moment = std::uint64_t{replica.tensor} * 2;
    replicas.push_back({std::move(first), kept_.numbers[pair.first], moment, replica});
    replicas.push_back({std::move(boxes.second[replica.local]), kept_.numbers[pair.second], moment + 1, replica});
  }
  return replicas;
}

base::Json StateCoder::quantisation() const { return plan_ ? base::Json(plan_->codec_names) : base::Json::object(); }

}  // namespace cairn::codes
