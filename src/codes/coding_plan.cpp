#include "codes/coding_plan.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "codes/idle_codecs.hpp"
#include "comm/agree.hpp"
#include "format/safetensors.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/claim_steps.hpp"
#include "quant/boxes.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {
namespace {

/// Scales of whole tensors that are combined at a time: at most this many bytes, times the number of ranks.
constexpr std::uint64_t kScaleBytes = 16ULL << 20;

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t step) { return base::ceil_div(value, step) * step; }

/// Whether the elements of the box are contiguous in the flattened tensor.
bool is_flat_range(const Box& box, const quant::Shape& shape) {
  std::size_t d = 0;
  while (d < shape.size() && box.shape[d] == 1) ++d;
  for (++d; d < shape.size(); ++d) {
    if (box.shape[d] != shape[d]) return false;
  }
  return true;
}

/// Cuts a box of the view, along the last dimension, into whole blocks (own) and the rest on both sides (split).
void cut_last_dimension(const plan::Piece& whole, const quant::Shape& view, std::uint64_t step, Pieces& into) {
  const std::uint64_t begin = whole.box.offset.back();
  const std::uint64_t end = begin + whole.box.shape.back();
  const std::uint64_t first = std::min(rounded_up(begin, step), end);
  const std::uint64_t last = std::max(first, end == view.back() ? end : end / step * step);
  const auto sub = [&](std::uint64_t from, std::uint64_t to) {
    Box box = whole.box;
    box.offset.back() = from;
    box.shape.back() = to - from;
    return box;
  };
  if (begin < first) into.split.push_back({whole.tensor, whole.local, whole.rank, sub(begin, first)});
  if (first < last) into.own.push_back({whole.tensor, whole.local, whole.rank, sub(first, last)});
  if (last < end) into.split.push_back({whole.tensor, whole.local, whole.rank, sub(last, end)});
}

/// Makes CodingPlan::scale_batches. A batch has at most kScaleBytes of scales for each rank, or one tensor.
std::vector<std::uint32_t> scale_batches_of(const CodingPlan& plan, int ranks) {
  const std::uint64_t limit = kScaleBytes * static_cast<std::uint64_t>(ranks);
  std::vector<std::uint32_t> ends;
  std::uint64_t bytes = 0;
  for (plan::PackedCatalog::Cursor at(plan.firsts, 0); at.next();) {
    const quant::Codec& codec = *plan.codecs.at(std::string(at.section()));
    if (!has_scales(codec)) continue;
    std::uint64_t more = 0;
    for (const quant::Part& part : codec.parts({at.shape().begin(), at.shape().end()})) {
      if (part.role == quant::Role::kScales) more += quant::bytes_of(part, shard::whole(part.shape));
    }
    if (bytes != 0 && bytes + more > limit) {
      ends.push_back(at.number());
      bytes = 0;
    }
    bytes += more;
  }
  if (bytes != 0) ends.push_back(plan.firsts.size());
  return ends;
}

std::uint64_t spared_bytes_of(const CodingPlan& plan) {
  std::uint64_t moments = 0;
  std::uint64_t codes = 0;
  for (plan::PackedCatalog::Cursor at(plan.firsts, 0); at.next();) {
    const quant::Shape shape{at.shape().begin(), at.shape().end()};
    moments += 2 * format::try_tensor_bytes(DType::kF32, shape).bytes;
    for (const quant::Part& part : plan.codecs.at(std::string(at.section()))->parts(shape)) {
      codes += quant::bytes_of(part, shard::whole(part.shape));
    }
  }
  return moments - std::min(moments, codes);
}

std::map<std::string, std::string> codec_names_of(const CodingPlan& plan) {
  std::map<std::string, std::string> names;
  for (plan::PackedCatalog::Cursor at(plan.firsts, 0); at.next();) {
    const std::string section(at.section());
    names[section] = plan.codecs.at(section)->traits().name;
  }
  return names;
}

}  // namespace

bool has_scales(const quant::Codec& codec) { return codec.traits().cut == quant::Cut::kAnywhere; }

void cut_box(const quant::Codec& codec, const quant::Shape& shape, const plan::Piece& whole, Pieces& into) {
  if (shard::is_empty(whole.box)) return;
  const quant::Shape view = codec.view(shape);
  const std::uint64_t step = codec.traits().block_elements;
  if (view == shape) return cut_last_dimension(whole, view, step, into);
  if (!is_flat_range(whole.box, shape)) {
    into.split.push_back(whole);
    return;
  }
  Pieces flat;
  const std::uint64_t begin = shard::flat_index(shape, whole.box.offset);
  cut_last_dimension({whole.tensor, whole.local, whole.rank, {{begin}, {shard::elements_of(whole.box)}}}, view, step,
                     flat);
  into.own.insert(into.own.end(), flat.own.begin(), flat.own.end());
  for (const plan::Piece& piece : flat.split) {
    const std::uint64_t from = piece.box.offset[0];
    for (Box& box : shard::boxes_of_flat_range(shape, from, from + piece.box.shape[0])) {
      into.split.push_back({piece.tensor, piece.local, piece.rank, std::move(box)});
    }
  }
}

CodedTensor make_coded_tensor(const quant::Codec& codec, const plan::CatalogTensor& moment) {
  CodedTensor coded;
  coded.section = moment.section;
  coded.names = moments_of(moment.name).value();
  coded.source = {coded.names.first, moment.shape};
  coded.codec = &codec;
  coded.parts = codec.parts(moment.shape);
  return coded;
}

format::Coding coding_of(const CodedTensor& tensor) {
  return {tensor.codec->traits().name, tensor.names.first, tensor.names.second, tensor.source.shape};
}

std::vector<Box> boxes_in_tensor(const CodedTensor& tensor, const Box& box) {
  const quant::Shape& shape = tensor.source.shape;
  if (tensor.codec->view(shape) == shape) return {box};
  return shard::boxes_of_flat_range(shape, box.offset[0], box.offset[0] + box.shape[0]);
}

CodedTensor CodingPlan::tensor(std::uint32_t number) const {
  const plan::CatalogTensor first = firsts.at(number);
  return make_coded_tensor(*codecs.at(first.section), first);
}

MomentBoxes moment_boxes(const SortedState& sorted, std::span<const Source> state) {
  MomentBoxes boxes;
  for (std::uint32_t i = 0; i < sorted.pairs.size(); ++i) {
    planning::add_boxes(state[sorted.pairs[i].first], i, boxes.first);
    planning::add_boxes(state[sorted.pairs[i].second], i, boxes.second);
  }
  return boxes;
}

CodingPlan make_coding_plan(comm::Communicator& communicator, std::span<const Source> state,
                            const Quantisation& quantisation) {
  CodingPlan plan;
  std::vector<Source> firsts;
  std::vector<plan::MemoryBox> boxes;
  comm::agree(communicator, "pair the moments", [&] {
    plan.codecs = codecs_of(quantisation);
    plan.sorted = sort_state(state, plan.codecs);
    for (const MomentPair& pair : plan.sorted.pairs) firsts.push_back(state[pair.first]);
    boxes = planning::memory_boxes(std::span<const Source>(firsts));
  });
  plan.firsts = planning::exchange_catalog(communicator, {firsts});
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator, "number the moments",
              [&] { tensor_of_shard = planning::number_tensors(plan.firsts, firsts); });
  planning::SettledClaims settled = planning::exchange_claims(communicator, plan.firsts, boxes, tensor_of_shard);
  comm::agree(communicator, "cut the moments", [&] {
    plan.replicas = std::move(settled.replicas);
    for (const plan::Piece& piece : settled.pieces) {
      const plan::CatalogTensor tensor = plan.firsts.at(piece.tensor);
      cut_box(*plan.codecs.at(tensor.section), tensor.shape, piece, plan.pieces);
    }
    plan.scale_batches = scale_batches_of(plan, communicator.size());
    plan.codec_names = codec_names_of(plan);
    plan.spared_bytes = spared_bytes_of(plan);
  });
  plan.idle = idle_codecs(communicator, state, plan.codecs, plan.codec_names);
  return plan;
}

}  // namespace cairn::codes
