#include "codes/view.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "format/manifest.hpp"
#include "plan/catalog.hpp"
#include "quant/cast.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {
namespace {

ViewTensor as_it_is(const format::StoredCheckpoint& stored, std::uint32_t number) {
  const format::StoredTensor& tensor = stored.tensors[number];
  return {tensor.section, tensor.name, tensor.dtype, tensor.shape, Origin::kStored, number};
}

std::vector<CodedPair> pairs_of(const opening::OpenCheckpoint& checkpoint) {
  if (checkpoint.quantised.empty()) return {};
  const plan::PackedCatalog& catalog = checkpoint.stored.tensors.catalog();
  std::vector<CodedPair> pairs;
  for (const interop::QuantisedMoments& moments : checkpoint.quantised) {
    const quant::Codec& codec = quant::find_codec(moments.codec);
    // With one scale a box, each box was coded as a tensor of 1 dimension.
    const quant::Shape coded =
        moments.one_scale_a_box ? quant::Shape{shard::elements_of(moments.shape)} : moments.shape;
    CodedPair pair{&moments, &codec, codec.parts(coded), {}};
    for (const std::string& part : moments.parts) pair.stored.push_back(catalog.find(moments.section, part).value());
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::vector<format::Rebuilt> rules_of(const opening::OpenCheckpoint& checkpoint) {
  if (!checkpoint.manifest) return {};
  return format::parse_rebuilt(checkpoint.manifest->extra, (checkpoint.directory / format::kManifestFile).string());
}

void add_moments(View& view) {
  for (std::uint32_t i = 0; i < view.pairs.size(); ++i) {
    const interop::QuantisedMoments& moments = *view.pairs[i].moments;
    view.tensors.push_back({moments.section, moments.first, DType::kF32, moments.shape, Origin::kFirstMoment, i});
    view.tensors.push_back({moments.section, moments.second, DType::kF32, moments.shape, Origin::kSecondMoment, i});
  }
}

/// The tensors that a rule makes from stored tensors of its source section: those that its own section lacks.
std::vector<ViewTensor> made_by(const View& view, const format::Rebuilt& rule) {
  std::set<std::string_view> present;
  for (const ViewTensor& tensor : view.tensors) {
    if (tensor.section == rule.section) present.insert(tensor.name);
  }
  std::vector<ViewTensor> made;
  for (const ViewTensor& tensor : view.tensors) {
    if (tensor.section != rule.from || tensor.origin != Origin::kStored || tensor.dtype == rule.dtype) continue;
    if (!quant::can_cast(tensor.dtype, rule.dtype) || present.contains(tensor.name)) continue;
    made.push_back({rule.section, tensor.name, rule.dtype, tensor.shape, Origin::kCast, tensor.source});
  }
  return made;
}

/// Master weights made from model weights, or equal to them, if the view has no master weights.
std::vector<ViewTensor> master_weights_of_model(const View& view) {
  const auto is_master = [](const ViewTensor& tensor) { return tensor.section == format::kMasterWeightsSection; };
  if (std::any_of(view.tensors.begin(), view.tensors.end(), is_master)) return {};
  auto made = made_by(view, {format::kMasterWeightsSection, format::kModelSection, DType::kF32});
  for (ViewTensor tensor : view.tensors) {
    if (tensor.section != format::kModelSection || tensor.origin != Origin::kStored) continue;
    if (tensor.dtype != DType::kF32) continue;
    tensor.section = format::kMasterWeightsSection;
    made.push_back(tensor);
  }
  return made;
}

void sort_by_catalog(std::vector<ViewTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const ViewTensor& a, const ViewTensor& b) {
    return plan::in_catalog_order(a.section, a.name, b.section, b.name);
  });
}

}  // namespace

Box CodedPair::stored_box(std::size_t part, const Box& box, std::uint64_t scales) const {
  if (moments->boxes.empty()) return codec->part_box(moments->shape, part, box);
  if (parts[part].role == quant::Role::kCodes) return box;
  Box out{{scales}, {1}};
  if (moments->one_scale_a_box) return out;
  const Box columns = codec->part_box(moments->shape, part, box);
  out.offset.insert(out.offset.end(), columns.offset.begin(), columns.offset.end());
  out.shape.insert(out.shape.end(), columns.shape.begin(), columns.shape.end());
  return out;
}

ViewOptions view_options(const Options& options) {
  return {options.quantisation.decode_by_reciprocals, options.quantisation.master_weight_compatible};
}

View stored_view(const opening::OpenCheckpoint& checkpoint) {
  View view;
  view.stored = std::make_shared<const format::StoredCheckpoint>(checkpoint.stored.unpacked());
  view.tensors.reserve(view.stored->tensors.size());
  for (std::uint32_t i = 0; i < view.stored->tensors.size(); ++i) view.tensors.push_back(as_it_is(*view.stored, i));
  view.pairs = pairs_of(checkpoint);
  return view;
}

View loading_view(const opening::OpenCheckpoint& checkpoint, const ViewOptions& options) {
  const bool as_stored =
      checkpoint.quantised.empty() && !options.master_weight_compatible && rules_of(checkpoint).empty();
  return as_stored ? View() : decoded_view(checkpoint, options);
}

View decoded_view(const opening::OpenCheckpoint& checkpoint, const ViewOptions& options) {
  View view = stored_view(checkpoint);
  if (options.decode_by_reciprocals) view.decode.division = quant::Division::kReciprocal;
  const std::vector<format::Rebuilt> rules = rules_of(checkpoint);
  if (!view.pairs.empty()) {
    view.as_stored = false;
    std::vector<bool> is_part(view.tensors.size(), false);
    for (const CodedPair& pair : view.pairs) {
      for (const std::uint32_t number : pair.stored) is_part[number] = true;
    }
    for (const ViewTensor& tensor : view.tensors) {
      if (is_part[tensor.source]) view.parts.push_back(tensor);
    }
    std::erase_if(view.tensors, [&](const ViewTensor& tensor) { return is_part[tensor.source]; });
    add_moments(view);
  }
  std::vector<ViewTensor> made;
  for (const format::Rebuilt& rule : rules) {
    const auto more = made_by(view, rule);
    made.insert(made.end(), more.begin(), more.end());
  }
  view.tensors.insert(view.tensors.end(), made.begin(), made.end());
  if (options.master_weight_compatible) {
    const auto more = master_weights_of_model(view);
    view.masters_of_model = !more.empty();
    made.insert(made.end(), more.begin(), more.end());
    view.tensors.insert(view.tensors.end(), more.begin(), more.end());
  }
  if (!made.empty()) view.as_stored = false;
  if (!view.as_stored) sort_by_catalog(view.tensors);
  return view;
}

View mapped_view(View view, const plan::TensorMap& map) {
  view.sources = std::exchange(view.tensors, {});
  for (std::uint32_t i = 0; i < map.sources.size(); ++i) {
    const plan::CatalogTensor& target = map.catalog.tensors[i];
    const auto pieces = map.pieces.find(i);
    if (pieces == map.pieces.end()) {
      view.tensors.push_back(view.sources[map.sources[i]]);
      view.as_stored = view.as_stored && map.sources[i] == i;
    } else {
      view.tensors.push_back(
          {{}, {}, target.dtype, {}, Origin::kMapped, static_cast<std::uint32_t>(view.mapped.size())});
      view.mapped.push_back(pieces->second);
      view.as_stored = false;
    }
    view.tensors.back().section = target.section;
    view.tensors.back().name = target.name;
    view.tensors.back().shape = target.shape;
  }
  return view;
}

}  // namespace cairn::codes
