#include "interop/paddle/slices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "interop/paddle/config.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

using Shape = std::vector<std::uint64_t>;

Shape shape_of(const Fragment& fragment) { return {fragment.entry->shape.begin(), fragment.entry->shape.end()}; }

void check_alike(std::span<const Fragment> fragments, const Reading& reading) {
  for (const Fragment& fragment : fragments) {
    if (fragment.entry->dtype == fragments.front().entry->dtype) continue;
    throw wrong_fragment(fragment, reading,
                         fmt::format("is {}, and {} in {}", name_of(fragment.entry->dtype),
                                     name_of(fragments.front().entry->dtype), shown(fragments.front().file->name)));
  }
}

Slice whole_slice(const Fragment& fragment) { return {fragment, {{shard::whole(fragment.entry->shape), 0, 0}}}; }

/// The only dimension in which the slices differ from the whole, if the slices' sizes along it add up to the whole's.
std::optional<std::size_t> cut_dimension(std::span<const Shape> slices, const Shape& whole) {
  std::optional<std::size_t> dimension;
  for (const Shape& slice : slices) {
    if (slice.size() != whole.size()) return std::nullopt;
    for (std::size_t d = 0; d < whole.size(); ++d) {
      if (slice[d] == whole[d]) continue;
      if (dimension && *dimension != d) return std::nullopt;
      dimension = d;
    }
  }
  if (!dimension) return std::nullopt;
  std::uint64_t sum = 0;
  for (const Shape& slice : slices) sum = base::add(sum, slice[*dimension], "rows of slices");
  return sum == whole[*dimension] ? dimension : std::nullopt;
}

/// The widths of the weights fused side by side in the whole, if it is cut along its last dimension; otherwise {1}.
Shape side_by_side(const Parameter& parameter, const Shape& whole, std::size_t dimension) {
  return dimension + 1 == whole.size() ? parameter.fused.widths : Shape{1};
}

/// A part of a slice that is one box of the whole: this box, and its beginning in the slice.
struct Part {
  Box of_whole;
  Shape begin;
};

/// The parts of each slice: the whole is cut along the dimension into slices of these shapes, and each slice has a part
/// of each fused weight, whose widths are in proportion to `widths`. Nothing if the slices cannot come from such a cut.
std::optional<std::vector<std::vector<Part>>> parts_of_slices(std::span<const Shape> slices, std::size_t dimension,
                                                              const Shape& widths) {
  std::uint64_t length = 0;
  std::uint64_t units = 0;
  for (const Shape& slice : slices) length = base::add(length, slice[dimension], "elements of slices");
  for (const std::uint64_t width : widths) units = base::add(units, width, "widths of fused weights");
  // The part of a length that belongs to weights of this total width.
  const auto share = [&](std::uint64_t of, std::uint64_t width) {
    return base::mul(of, width, "elements of slices") / units;
  };
  const auto is_even = [&](std::uint64_t of) {
    return units != 0 && std::ranges::all_of(widths, [&](std::uint64_t width) {
             return base::mul(of, width, "elements of slices") % units == 0;
           });
  };
  std::vector<std::vector<Part>> out;
  std::uint64_t before = 0;  // length of the slices so far
  for (const Shape& slice : slices) {
    if (!is_even(slice[dimension]) || !is_even(length)) return std::nullopt;
    auto& parts = out.emplace_back();
    std::uint64_t widths_before = 0;
    for (const std::uint64_t width : widths) {
      Part part{{Shape(slice.size(), 0), slice}, Shape(slice.size(), 0)};
      part.of_whole.offset[dimension] = share(length, widths_before) + share(before, width);
      part.of_whole.shape[dimension] = share(slice[dimension], width);
      part.begin[dimension] = share(slice[dimension], widths_before);
      parts.push_back(std::move(part));
      widths_before += width;
    }
    before += slice[dimension];
  }
  return out;
}

// ---- ranges of flattened parameters

constexpr std::array<std::uint64_t, 2> kAlignments = {256, 512};  // bytes, by device

std::uint64_t rounded_up(std::uint64_t elements, std::uint64_t unit) {
  return base::mul(base::ceil_div(elements, unit), unit, "elements with padding");
}

/// Whether a parameter's slices may together have `with_padding` elements: `elements`, and zeros up to a multiple of
/// the alignment times the number of sharding ranks. Merged files do not show this number.
bool is_padded(std::uint64_t elements, std::uint64_t with_padding, const Parameter& parameter, const RankFiles& files) {
  const std::uint64_t ranks = files.degrees[kSharding];
  for (const std::uint64_t alignment : kAlignments) {
    for (std::uint64_t degree = 1; degree <= ranks; ++degree) {
      if (files.is_numbered ? ranks % degree != 0 : degree != ranks) continue;
      const std::uint64_t unit = alignment / parameter.element_bytes * degree;
      if (rounded_up(elements, unit) == with_padding) return true;
    }
  }
  return false;
}

/// The parameter's shape in memory; the slices are ranges of its flattened elements.
Shape flat_shape(const Parameter& parameter, const Fragment& fragment, const Reading& reading) {
  if (!parameter.shape) {
    throw wrong_fragment(
        fragment, reading,
        "is a slice of a flattened parameter (sharding v2, split_param), and no weight of the model has its name "
        "and says its shape");
  }
  if (parameter.may_be_turned) {
    throw wrong_fragment(
        fragment, reading,
        fmt::format("is a slice of a flattened parameter (sharding v2, split_param), whose weight {} was saved "
                    "for Hugging Face (save_to_hf): whether that turned it round is not known of its name ({})",
                    shard::shape_text(*parameter.shape), why_unknown(facts_of(config_of(reading), parameter.name))));
  }
  return *parameter.shape;
}

/// A tensor that was cut into flat ranges: the whole parameter, or one tensor-parallel rank's slice of it.
struct Flattened {
  Shape shape;
  std::vector<Part> parts;
};

std::vector<Flattened> flattened(const Parameter& parameter, std::span<const Fragment> fragments, const Shape& whole,
                                 const RankFiles& files, const Reading& reading) {
  const auto is_whole = [&](const Shape& slice) { return slice == whole; };
  const Shape origin(whole.size(), 0);
  if (files.degrees[kTensor] == 1 || (!parameter.slices.empty() && std::ranges::all_of(parameter.slices, is_whole))) {
    return {{whole, {{shard::whole(whole), origin}}}};
  }
  const auto dimension = cut_dimension(parameter.slices, whole);
  auto parts = dimension ? parts_of_slices(parameter.slices, *dimension, side_by_side(parameter, whole, *dimension))
                         : std::nullopt;
  if (!parts || parts->size() != files.degrees[kTensor]) {
    throw wrong_fragment(
        fragments.back(), reading,
        "is a slice of a flattened slice of a tensor-parallel rank (sharding v2, split_param): nothing tells "
        "along which dimension the ranks cut it; save again with split_param off");
  }
  std::vector<Flattened> out;
  for (std::size_t rank = 0; rank < parts->size(); ++rank) {
    out.push_back({parameter.slices[rank], std::move((*parts)[rank])});
  }
  return out;
}

/// A range of a flattened tensor, as boxes of the whole parameter.
std::vector<SliceBox> boxes_of_range(const Flattened& of, std::uint64_t begin, std::uint64_t end) {
  std::vector<SliceBox> out;
  std::uint64_t first = 0;
  for (const Box& box : shard::boxes_of_flat_range(of.shape, begin, end)) {
    for (const Part& part : of.parts) {
      const auto common = shard::intersect(box, {part.begin, part.of_whole.shape});
      if (!common) continue;
      Box of_whole = *common;
      Shape in_box = common->offset;
      for (std::size_t d = 0; d < in_box.size(); ++d) {
        of_whole.offset[d] = common->offset[d] - part.begin[d] + part.of_whole.offset[d];
        in_box[d] -= box.offset[d];
      }
      const bool is_narrower = !box.shape.empty() && common->shape.back() != box.shape.back();
      out.push_back(
          {std::move(of_whole), first + shard::flat_index(box.shape, in_box), is_narrower ? box.shape.back() : 0});
    }
    first += shard::elements_of(box);
  }
  return out;
}

/// The ranges of one tensor-parallel rank, in the order of sharding ranks. If several pipeline stages or expert
/// ranks have copies of a shared tensor, only the first one's ranges.
std::vector<Fragment> ranges_in_order(std::span<const Fragment> fragments, std::uint32_t tensor_rank,
                                      const Reading& reading) {
  std::vector<Fragment> in_order;
  for (const Fragment& fragment : fragments) {
    if (fragment.file->rank[kTensor] != tensor_rank) continue;
    if (fragment.entry->shape.size() != 1) {
      throw wrong_fragment(fragment, reading,
                           "stands among slices of flattened parameters (sharding v2), which have 1 dimension");
    }
    const auto& home = in_order.empty() ? fragment.file->rank : in_order.front().file->rank;
    const auto& rank = fragment.file->rank;
    if (rank[kPipeline] == home[kPipeline] && rank[kExpert] == home[kExpert]) in_order.push_back(fragment);
  }
  const auto rank_of = [](const Fragment& fragment) { return fragment.file->rank[kSharding]; };
  std::ranges::stable_sort(in_order, {}, rank_of);
  const auto same = std::ranges::adjacent_find(in_order, {}, rank_of);
  if (same != in_order.end()) {
    throw wrong_fragment(*std::next(same), reading, fmt::format("is in {} as well", shown(same->file->name)));
  }
  return in_order;
}

WholeTensor join_ranges(const Parameter& parameter, std::span<const Fragment> fragments, const RankFiles& files,
                        const Reading& reading) {
  WholeTensor out;
  out.cut = CutBy::kRange;
  out.shape = flat_shape(parameter, fragments.front(), reading);
  const std::vector<Flattened> slices = flattened(parameter, fragments, out.shape, files, reading);
  for (std::uint32_t tensor_rank = 0; tensor_rank < slices.size(); ++tensor_rank) {
    const Flattened& of = slices[tensor_rank];
    const std::uint64_t elements = shard::elements_of(of.shape);
    const std::vector<Fragment> in_order = ranges_in_order(fragments, tensor_rank, reading);
    if (in_order.empty()) {
      throw wrong_fragment(fragments.front(), reading,
                           fmt::format("is a slice of parameter {} {}, and no file has one of tensor-parallel rank {}",
                                       in_quotes(parameter.name), shard::shape_text(out.shape), tensor_rank));
    }
    std::uint64_t at = 0;
    for (const Fragment& fragment : in_order) {
      const std::uint64_t begin = std::min(at, elements);
      at = base::add(at, fragment.entry->shape[0], "elements of slices");
      Slice slice{fragment, boxes_of_range(of, begin, std::min(at, elements))};
      if (!slice.boxes.empty()) out.slices.push_back(std::move(slice));
    }
    if (at < elements || !is_padded(elements, at, parameter, files)) {
      throw wrong_fragment(
          in_order.back(), reading,
          fmt::format("is the last slice of parameter {} {}, whose slices (sharding v2, split_param) hold {} of its "
                      "{} elements and padding together: one is missing or of another size",
                      in_quotes(parameter.name), shard::shape_text(of.shape), at, elements));
    }
  }
  // A parameter without elements has no range in any slice, but is stored.
  if (out.slices.empty()) out.slices.push_back({fragments.front(), {{shard::whole(out.shape), 0, 0}}});
  return out;
}

// ---- rows or columns

/// One fragment for each tensor-parallel rank. Pipeline stages and expert ranks may have copies of a shared tensor;
/// only one sharding rank may have it, unless it is a scalar.
std::vector<Fragment> of_each_tensor_rank(std::span<const Fragment> fragments, const Reading& reading) {
  std::vector<Fragment> out;
  for (const Fragment& fragment : fragments) {
    const auto rank_of = [](const Fragment& f) { return f.file->rank[kTensor]; };
    const auto known = std::ranges::find(out, rank_of(fragment), rank_of);
    if (known == out.end()) {
      out.push_back(fragment);
      continue;
    }
    const auto& a = known->file->rank;
    const auto& b = fragment.file->rank;
    const bool is_copy = a[kPipeline] != b[kPipeline] || a[kExpert] != b[kExpert];
    const bool is_scalar = shard::elements_of(fragment.entry->shape) == 1;
    if ((is_copy || is_scalar) && std::ranges::equal(fragment.entry->shape, known->entry->shape)) continue;
    throw wrong_fragment(fragment, reading,
                         fmt::format("is in {} as well, with shape {}", shown(known->file->name),
                                     shard::shape_text(known->entry->shape)));
  }
  std::ranges::stable_sort(out, {}, [](const Fragment& f) { return f.file->rank[kTensor]; });
  return out;
}

WholeTensor join_dimension(const Parameter& parameter, std::span<const Fragment> slices, std::span<const Shape> shapes,
                           std::size_t dimension, const Reading& reading) {
  WholeTensor out{*parameter.shape, CutBy::kDimension, dimension, {}};
  const bool is_column = dimension + 1 == out.shape.size();
  if (is_column && !parameter.fused.unknown.empty()) {
    throw wrong_fragment(slices.front(), reading, "is a slice: " + parameter.fused.unknown);
  }
  const Shape widths = side_by_side(parameter, out.shape, dimension);
  const auto parts = parts_of_slices(shapes, dimension, widths);
  if (!parts) {
    throw wrong_fragment(
        slices.front(), reading,
        fmt::format("cannot be a slice of {} weights side by side of {} columns", widths.size(), out.shape[dimension]));
  }
  for (std::size_t i = 0; i < slices.size(); ++i) {
    Slice slice{slices[i], {}};
    for (const Part& part : (*parts)[i]) {
      slice.boxes.push_back(
          {part.of_whole, shard::flat_index(shapes[i], part.begin), widths.size() == 1 ? 0 : shapes[i].back()});
    }
    out.slices.push_back(std::move(slice));
  }
  return out;
}

bool has_shape(const Fragment& fragment, const Parameter& parameter) {
  if (std::ranges::equal(fragment.entry->shape, *parameter.shape)) return true;
  return parameter.may_be_turned && std::equal(fragment.entry->shape.begin(), fragment.entry->shape.end(),
                                               parameter.shape->rbegin(), parameter.shape->rend());
}

void refuse_missing_slices(std::span<const Fragment> slices, const RankFiles& files, const Parameter& parameter,
                           const Reading& reading) {
  for (std::uint32_t rank = 0; rank < files.degrees[kTensor]; ++rank) {
    if (rank < slices.size() && slices[rank].file->rank[kTensor] == rank) continue;
    auto where = slices.front().file->rank;
    where[kTensor] = rank;
    throw wrong_fragment(
        slices.front(), reading,
        fmt::format("is a slice of parameter {} {}, and {} does not have the one of rank {}", in_quotes(parameter.name),
                    shard::shape_text(*parameter.shape), shown(files.name_of(where)), rank));
  }
}

WholeTensor join_slices(const Parameter& parameter, std::span<const Fragment> fragments, const RankFiles& files,
                        const Reading& reading) {
  const std::vector<Fragment> slices = of_each_tensor_rank(fragments, reading);
  const Fragment& first = slices.front();
  if (!parameter.shape) {
    if (slices.size() == 1) return {shape_of(first), CutBy::kNothing, 0, {whole_slice(first)}};
    throw wrong_fragment(first, reading,
                         "is of several tensor-parallel ranks, and no weight of the model says what it is a part of");
  }
  const auto is_whole = [&](const Fragment& fragment) { return has_shape(fragment, parameter); };
  if (std::ranges::all_of(slices, is_whole)) return {shape_of(first), CutBy::kNothing, 0, {whole_slice(first)}};
  if (files.degrees[kTensor] > 1) refuse_missing_slices(slices, files, parameter, reading);
  std::vector<Shape> shapes;
  for (const Fragment& slice : slices) shapes.push_back(shape_of(slice));
  const auto dimension = cut_dimension(shapes, *parameter.shape);
  if (dimension) return join_dimension(parameter, slices, shapes, *dimension, reading);
  throw wrong_fragment(
      first, reading,
      slices.size() == 1
          ? fmt::format("does not fit parameter {}, whose weight is {}", in_quotes(parameter.name),
                        shard::shape_text(*parameter.shape))
          : fmt::format("and those of the other tensor-parallel ranks do not make parameter {}, whose weight is "
                        "{}",
                        in_quotes(parameter.name), shard::shape_text(*parameter.shape)));
}

}  // namespace

std::string_view module_of(std::string_view parameter) {
  parameter = parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string_view::npos ? parameter : parameter.substr(dot + 1);
}

Error wrong_fragment(const Fragment& fragment, const Reading& reading, const std::string& text) {
  return reading.error(ErrorKind::kFormat, fragment.file->name,
                       fmt::format("tensor {} of shape {} {}", in_quotes(fragment.entry->name),
                                   shard::shape_text(fragment.entry->shape), text));
}

WholeTensor put_together(const Parameter& parameter, std::span<const Fragment> fragments, const RankFiles& files,
                         bool is_flat, const Reading& reading) {
  check_alike(fragments, reading);
  return is_flat ? join_ranges(parameter, fragments, files, reading)
                 : join_slices(parameter, fragments, files, reading);
}

}  // namespace cairn::interop
