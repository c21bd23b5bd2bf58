#include "interop/paddle/unmerged.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "interop/paddle/config.hpp"
#include "interop/paddle/paddle.hpp"
#include "quant/boxes.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";

/// The stored tensors of one parameter in a set, by the suffix after the parameter's name ("/moment1_0@scales";
/// "" outside the optimizer).
using Family = std::map<std::string_view, std::vector<Fragment>>;
using Families = std::map<std::string_view, Family>;

Families families_of(const RankFiles& files) {
  Families families;
  for (const RankFile& file : files.files) {
    for (const format::TensorEntry& entry : file.header->tensors) {
      const std::size_t slash = files.section == kOptimizer ? entry.name.rfind('/') : std::string_view::npos;
      const std::size_t end = std::min(slash, entry.name.size());
      families[entry.name.substr(0, end)][entry.name.substr(end)].push_back({&file, &entry});
    }
  }
  return families;
}

bool is_accumulator(std::string_view suffix) { return suffix.ends_with("_pow_acc_0"); }

bool is_moment(std::string_view suffix) {
  return suffix.starts_with(kFirstMoment) || suffix.starts_with(kSecondMoment);
}

bool is_coded(const Family& family) {
  return std::ranges::any_of(family, [](const auto& member) {
    const DType dtype = member.second.front().entry->dtype;
    return is_moment(member.first) && (dtype == DType::kI8 || dtype == DType::kU8 || is_scale_name(member.first));
  });
}

Error missing(const Fragment& beside, std::string_view name, const std::string& why, const Reading& reading) {
  return reading.error(ErrorKind::kFormat, beside.file->name,
                       fmt::format("tensor {} is missing: {}", in_quotes(name), why));
}

std::uint64_t offset_of(const Fragment& fragment, std::uint64_t first_elem, const Reading& reading) {
  const auto bits = base::try_mul(first_elem, bits_of(fragment.entry->dtype));
  if (!bits || *bits % 8 != 0) {
    throw wrong_fragment(fragment, reading, "has slices that begin within a byte, which are not read");
  }
  return fragment.file->header->data_start + fragment.entry->begin + *bits / 8;
}

/// Assembles the tensors of one set.
class SetReader {
 public:
  SetReader(const RankFiles& files, const quant::Codec* codec, const Parameters& parameters, Reading& reading,
            Recognised& out)
      : files_(files),
        codec_(codec),
        parameters_(parameters),
        is_flat_(has_flat_slices(files, parameters)),
        section_(*out.sections.insert(files.section).first),
        reading_(reading),
        out_(out) {}

  void read(const Families& families) {
    for (const auto& [name, family] : families) {
      const Parameter parameter = parameter_of(name);
      const bool coded = codec_ != nullptr && is_coded(family);
      if (coded) add_coded(parameter, family);
      for (const auto& [suffix, fragments] : family) {
        if (coded && is_moment(suffix)) continue;
        if (is_scale_name(suffix)) refuse_scales(fragments.front());
        is_accumulator(suffix) ? add_accumulator(fragments) : add(parameter, fragments);
      }
    }
    if (copies_ == 0) return;
    reading_.warn(fmt::format("section {}: {} in files of several ranks, e.g. {}; those of the first rank are taken",
                              shown(section_), base::counted(copies_, "tensor is", "tensors are"), in_quotes(copied_)));
  }

 private:
  [[nodiscard]] Parameter parameter_of(std::string_view name) const {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? Parameter{name, std::nullopt, 2, false} : found->second;
  }

  [[noreturn]] void refuse_scales(const Fragment& fragment) const {
    throw reading_.error(
        ErrorKind::kFormat, fragment.file->name,
        fmt::format("tensor {} is a scale of quantised moments, but {}", in_quotes(fragment.entry->name),
                    codec_ == nullptr ? kNoCodec : "there are no codes that it belongs to"));
  }

  void note_copies(std::span<const Fragment> fragments, std::size_t used) {
    if (used >= fragments.size()) return;
    ++copies_;
    copied_ = fragments.front().entry->name;
  }

  void add_whole(const Fragment& fragment) {
    out_.tensors.push_back(whole_tensor(section_, *fragment.entry, *fragment.file->header, fragment.file->number));
  }

  /// Each rank that has a part of a parameter has a copy of the parameter's accumulators.
  void add_accumulator(const std::vector<Fragment>& fragments) {
    for (const Fragment& fragment : fragments) {
      if (fragment.entry->dtype == fragments.front().entry->dtype &&
          std::ranges::equal(fragment.entry->shape, fragments.front().entry->shape))
        continue;
      throw reading_.error(
          ErrorKind::kFormat, fragment.file->name,
          fmt::format("tensor {} is {} {}, but {} {} in {}", in_quotes(fragment.entry->name),
                      name_of(fragment.entry->dtype), shard::shape_text(fragment.entry->shape),
                      name_of(fragments.front().entry->dtype), shard::shape_text(fragments.front().entry->shape),
                      shown(fragments.front().file->name)));
    }
    add_whole(fragments.front());
  }

  void add(const Parameter& parameter, const std::vector<Fragment>& fragments) {
    const WholeTensor whole = put_together(parameter, fragments, files_, is_flat_, reading_);
    if (whole.cut == CutBy::kNothing) {
      note_copies(fragments, 1);
      return add_whole(fragments.front());
    }
    add_boxes(fragments.front(), whole, [](const Slice& slice) { return slice.fragment; });
  }

  /// Adds the tensor assembled from one fragment for each slice, `fragment_of(slice)`, which has the slice's shape.
  template <class FragmentOf>
  void add_boxes(const Fragment& first, const WholeTensor& whole, const FragmentOf& fragment_of) {
    format::StoredTensor tensor{section_, std::string(first.entry->name), first.entry->dtype, whole.shape, {}};
    for (const Slice& slice : whole.slices) {
      const Fragment fragment = fragment_of(slice);
      for (const SliceBox& at : slice.boxes) {
        tensor.boxes.push_back(
            {fragment.file->number, offset_of(fragment, at.first_elem, reading_), at.box, at.row_elems});
      }
    }
    out_.add(std::move(tensor));
  }

  // ---- codes and scales

  /// The stored tensor for a part of the codec, from the file that has the slice's codes.
  [[nodiscard]] Fragment part_of(const Family& family, std::string_view name, const quant::Part& part,
                                 const Fragment& codes) const {
    const quant::MomentNames names{std::string(name) + std::string(kFirstMoment),
                                   std::string(name) + std::string(kSecondMoment)};
    const std::string full = quant::stored_name(part, names);
    const auto member = family.find(std::string_view(full).substr(name.size()));
    const auto in_file = [&](const Fragment& fragment) { return fragment.file == codes.file; };
    const auto found = member == family.end() ? std::vector<Fragment>::const_iterator()
                                              : std::ranges::find_if(member->second, in_file);
    if (member == family.end() || found == member->second.end()) {
      throw missing(
          codes, full,
          fmt::format("{} stores it beside {}, which is here", codec_->traits().name, in_quotes(codes.entry->name)),
          reading_);
    }
    try {
      quant::check_stored(*codec_, full, part, found->entry->dtype,
                          {found->entry->shape.begin(), found->entry->shape.end()});
    } catch (const Error& error) {
      throw reading_.error(error.kind(), found->file->name, error.what());
    }
    return *found;
  }

  void refuse_others(const Family& family, const std::set<std::string_view>& used, const Fragment& codes) const {
    for (const auto& [suffix, fragments] : family) {
      if (!is_moment(suffix) || used.contains(suffix)) continue;
      throw reading_.error(
          ErrorKind::kFormat, fragments.front().file->name,
          fmt::format("holds tensor {} as well, which {} does not store beside {}",
                      in_quotes(fragments.front().entry->name), codec_->traits().name, in_quotes(codes.entry->name)));
    }
  }

  void add_coded(const Parameter& parameter, const Family& family) {
    // Both codecs store codes in the slice's shape under the second moment's name.
    const auto codes = family.find(kSecondMoment);
    if (codes == family.end()) {
      const Fragment& other = family.begin()->second.front();
      throw missing(other, std::string(parameter.name) + std::string(kSecondMoment),
                    fmt::format("{} stores codes in it", codec_->traits().name), reading_);
    }
    const WholeTensor whole = put_together(parameter, codes->second, files_, is_flat_, reading_);
    std::vector<std::vector<Fragment>> parts_of_slices;
    std::set<std::string_view> used;
    for (const Slice& slice : whole.slices) {
      const std::vector<std::uint64_t> shape(slice.fragment.entry->shape.begin(), slice.fragment.entry->shape.end());
      if (const std::string reason = codec_->left_alone(shape); !reason.empty()) {
        throw reading_.error(ErrorKind::kFormat, slice.fragment.file->name,
                             fmt::format("tensor {} cannot be codes of {}: {}", in_quotes(slice.fragment.entry->name),
                                         codec_->traits().name, reason));
      }
      auto& parts = parts_of_slices.emplace_back();
      for (const quant::Part& part : codec_->parts(shape)) {
        parts.push_back(part_of(family, parameter.name, part, slice.fragment));
        used.insert(parts.back().entry->name.substr(parameter.name.size()));
      }
    }
    refuse_others(family, used, whole.slices.front().fragment);
    if (whole.cut == CutBy::kNothing) note_copies(codes->second, 1);
    add_parts(parameter, whole, parts_of_slices);
  }

  void add_parts(const Parameter& parameter, const WholeTensor& whole,
                 const std::vector<std::vector<Fragment>>& parts_of_slices) {
    QuantisedMoments moments;
    moments.codec = codec_->traits().name;
    moments.first = std::string(parameter.name) + std::string(kFirstMoment);
    moments.second = std::string(parameter.name) + std::string(kSecondMoment);
    moments.section = section_;
    moments.shape = whole.shape;
    const std::size_t dimensions = parts_of_slices.front().front().entry->shape.size();
    moments.one_scale_a_box = whole.cut != CutBy::kNothing && dimensions == 1;
    // Slices have whole groups of rows that share scales, and the scales of a column apply to all its rows.
    const bool has_scales_of_whole =
        whole.cut == CutBy::kNothing || codec_->traits().group_rows != 0 || (dimensions == 2 && whole.dimension == 1);
    if (!has_scales_of_whole) {
      for (std::size_t k = 0; k < whole.slices.size(); ++k) {
        for (const SliceBox& at : whole.slices[k].boxes) moments.boxes.push_back({at.box, k});
      }
    }
    const std::vector<std::uint64_t> first_shape(parts_of_slices.front().front().entry->shape.begin(),
                                                 parts_of_slices.front().front().entry->shape.end());
    const std::vector<quant::Part> parts = codec_->parts(first_shape);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Fragment& first = parts_of_slices.front()[i];
      moments.parts.emplace_back(first.entry->name);
      if (whole.cut == CutBy::kNothing) {
        add_whole(first);
      } else if (parts[i].role == quant::Role::kCodes) {
        add_boxes(first, whole, [&](const Slice& slice) {
          return parts_of_slices[static_cast<std::size_t>(&slice - whole.slices.data())][i];
        });
      } else if (has_scales_of_whole) {
        add_scales_of_whole(i, whole, parts_of_slices);
      } else {
        add_scales_of_boxes(i, parts_of_slices);
      }
    }
    out_.quantised.push_back(std::move(moments));
  }

  void add_scales_of_whole(std::size_t part, const WholeTensor& whole,
                           const std::vector<std::vector<Fragment>>& parts_of_slices) {
    const Fragment& first = parts_of_slices.front()[part];
    const std::vector<std::uint64_t> shape = codec_->parts(whole.shape)[part].shape;
    format::StoredTensor tensor{section_, std::string(first.entry->name), first.entry->dtype, shape, {}};
    for (std::size_t k = 0; k < whole.slices.size(); ++k) {
      const Fragment& fragment = parts_of_slices[k][part];
      for (const SliceBox& at : whole.slices[k].boxes) {
        const Box box = codec_->part_box(whole.shape, part, at.box);
        // For columns the first code is in the first row, so the scales begin at the same column.
        tensor.boxes.push_back({fragment.file->number, offset_of(fragment, at.first_elem, reading_), box,
                                box.shape.size() > 1 ? at.row_elems : 0});
      }
    }
    out_.add(std::move(tensor));
  }

  void add_scales_of_boxes(std::size_t part, const std::vector<std::vector<Fragment>>& parts_of_slices) {
    const Fragment& first = parts_of_slices.front()[part];
    std::vector<std::uint64_t> shape = {parts_of_slices.size()};
    shape.insert(shape.end(), first.entry->shape.begin(), first.entry->shape.end());
    format::StoredTensor tensor{section_, std::string(first.entry->name), first.entry->dtype, shape, {}};
    for (std::size_t k = 0; k < parts_of_slices.size(); ++k) {
      const Fragment& fragment = parts_of_slices[k][part];
      Box box = shard::whole(shape);
      box.offset[0] = k;
      box.shape[0] = 1;
      tensor.boxes.push_back({fragment.file->number, offset_of(fragment, 0, reading_), std::move(box)});
    }
    out_.add(std::move(tensor));
  }

  const RankFiles& files_;
  const quant::Codec* codec_;
  const Parameters& parameters_;
  bool is_flat_;
  const std::string& section_;
  Reading& reading_;
  Recognised& out_;
  std::size_t copies_ = 0;
  std::string_view copied_;
};

/// "/moment1_0" of "/moment1_0@scales".
std::string_view without_scales(std::string_view suffix) { return suffix.substr(0, suffix.find('@')); }

/// Checks that all parameters have the same states; if moments share codes, the scales stand for the first moment.
void check_states(const Families& families, const Reading& reading) {
  std::map<std::string_view, std::string_view> states;  // state -> a parameter that has it
  for (const auto& [name, family] : families) {
    for (const auto& [suffix, fragments] : family) states.emplace(without_scales(suffix), name);
  }
  for (const auto& [name, family] : families) {
    std::set<std::string_view> own;
    for (const auto& [suffix, fragments] : family) own.insert(without_scales(suffix));
    for (const auto& [state, other] : states) {
      if (own.contains(state)) continue;
      throw missing(family.begin()->second.front(), std::string(name) + std::string(state),
                    fmt::format("parameter {} has one", in_quotes(other)), reading);
    }
  }
}

/// Checks that the parameters with master weights are those with moments, except F32 parameters.
void check_masters(const Families& masters, const Families& optimizer, const Parameters& parameters,
                   const Reading& reading) {
  const auto require = [&](const Families& these, const Families& others, std::string_view what) {
    for (const auto& [name, family] : these) {
      const auto parameter = parameters.find(name);
      const bool is_f32 = parameter != parameters.end() && parameter->second.element_bytes == sizeof(float);
      if (is_f32 || others.contains(name)) continue;
      const Fragment& here = family.begin()->second.front();
      throw reading.error(
          ErrorKind::kFormat, here.file->name,
          fmt::format("has tensor {}, but no file has {} of that parameter", in_quotes(here.entry->name), what));
    }
  };
  require(optimizer, masters, "a master weight");
  require(masters, optimizer, "moments");
}

}  // namespace

Parameters parameters_of(Reading& reading) {
  Parameters parameters;
  std::vector<const format::SafetensorsHeader*> headers;
  for (const auto& [name, set] : reading.sets()) {
    if (set.section != "model" && set.section != "adapter") continue;
    for (const std::string& file : set.index_file.empty() ? set.files : set.index.files) {
      if (!reading.directory().safetensors.contains(file)) continue;  // read_sets() reports this file
      headers.push_back(&reading.header(file));
    }
  }
  ModelFacts facts = facts_of(config_of(reading));
  for (const auto* header : headers) {
    for (const format::TensorEntry& entry : header->tensors) take_family(facts, entry.name);
  }
  for (const auto* header : headers) {
    const auto format = header->metadata.find("format");
    const bool is_for_torch = format != header->metadata.end() && format->second == "pt";
    for (const format::TensorEntry& entry : header->tensors) {
      Parameter parameter{entry.name,
                          std::vector(entry.shape.begin(), entry.shape.end()),
                          std::max(bits_of(entry.dtype) / 8, 1U),
                          false,
                          {}};
      // Paddle cuts the adapter of a fused weight like a single weight.
      if (!entry.name.ends_with(".lora_B")) parameter.fused = fused_of(facts, entry.name);
      if (is_for_torch && entry.shape.size() == 2) {
        const auto is_turned = is_turned_in_file(facts, entry.name);
        parameter.may_be_turned = !is_turned;
        parameter.is_turned = is_turned.value_or(false);
        if (parameter.is_turned) std::swap(parameter.shape->front(), parameter.shape->back());
      }
      parameters.try_emplace(entry.name, std::move(parameter));
    }
  }
  return parameters;
}

bool has_flat_slices(const RankFiles& files, const Parameters& parameters) {
  for (const auto& [name, family] : families_of(files)) {
    const auto parameter = parameters.find(name);
    if (parameter == parameters.end()) continue;
    const std::vector<std::uint64_t>& shape = *parameter->second.shape;
    for (const auto& [suffix, fragments] : family) {
      if (is_scale_name(suffix) || is_accumulator(suffix)) continue;
      const auto& found = fragments.front().entry->shape;
      if (found.size() != 1 || (found[0] == 1 && shape.empty())) continue;
      // A tensor-parallel rank may have a part of a vector; merged files have all of it, or a slice with padding.
      if (shape.size() != 1 || found[0] > shape[0] || (files.is_numbered && found[0] != shape[0])) return true;
    }
  }
  return false;
}

void read_rank_files(const std::vector<RankFiles>& sets, const quant::Codec* codec, const Parameters& parameters,
                     Reading& reading, Recognised& out) {
  std::map<std::string_view, Families> families_of_sections;
  for (const RankFiles& files : sets) {
    const Families& families = families_of_sections[files.section] = families_of(files);
    if (files.section == kOptimizer) check_states(families, reading);
    SetReader(files, files.section == kOptimizer ? codec : nullptr, parameters, reading, out).read(families);
  }
  const auto masters = families_of_sections.find(kMasters);
  const auto optimizer = families_of_sections.find(kOptimizer);
  if (masters == families_of_sections.end() || optimizer == families_of_sections.end()) return;
  check_masters(masters->second, optimizer->second, parameters, reading);
}

void warn_of_stateless(Reading& reading, const Recognised& out) {
  std::set<std::string_view> with_state;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (tensor.section == kOptimizer) with_state.insert(tensor.name.substr(0, tensor.name.rfind('/')));
  }
  std::vector<std::string> without;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (tensor.section != "model" && tensor.section != "adapter") continue;
    if (!with_state.contains(tensor.name)) without.emplace_back(tensor.name);
  }
  if (without.empty()) return;
  reading.warn(fmt::format("{} no optimizer state in any rank's file: {}",
                           base::counted(without.size(), "tensor of the model has", "tensors of the model have"),
                           list_some(without)));
}

}  // namespace cairn::interop
