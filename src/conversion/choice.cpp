#include "conversion/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <numeric>
#include <set>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/manifest.hpp"
#include "interop/reading.hpp"
#include "quant/cast.hpp"
#include "quant/codec.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::conversion {
namespace {

/// A tensor's own name, and for codes and scales the names of the pair's moments and other parts.
struct Names {
  std::string_view section;
  std::vector<std::string_view> names;
};

std::vector<Names> names_of(const codes::View& view, const plan::Catalog& sources) {
  std::vector<Names> all;
  all.reserve(sources.tensors.size());
  for (const plan::CatalogTensor& tensor : sources.tensors) all.push_back({tensor.section, {tensor.name}});
  if (!view.as_stored) return all;
  for (const codes::CodedPair& pair : view.pairs) {
    std::vector<std::string_view> names = {pair.moments->first, pair.moments->second};
    names.insert(names.end(), pair.moments->parts.begin(), pair.moments->parts.end());
    for (const std::uint32_t number : pair.stored) all[number].names = names;
  }
  return all;
}

std::vector<bool> selected_by(const std::vector<Names>& all, const Selection& select) {
  const shard::Selector selector(select);
  std::vector<bool> selected(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    selected[i] = std::ranges::any_of(all[i].names,
                                      [&](std::string_view name) { return selector.selects(all[i].section, name); });
  }
  return selected;
}

[[noreturn]] void refuse(std::string_view place, std::string_view what, const std::string& pattern,
                         const std::set<std::string>& there) {
  const std::vector<std::string> names(there.begin(), there.end());
  throw Error(ErrorKind::kNotFound, fmt::format("'{}' has no {} like '{}'; there {} {}", base::printable(place), what,
                                                base::printable(pattern), names.size() == 1 ? "is" : "are",
                                                names.empty() ? "none" : interop::list_some(names)));
}

/// Throws for the first pattern that matches nothing. Names count only in selected sections.
void require_matches(const std::vector<Names>& all, const Selection& select, std::string_view place) {
  const auto matches = [&](const Selection& one) {
    const std::vector<bool> selected = selected_by(all, one);
    return std::ranges::find(selected, true) != selected.end();
  };
  for (const std::string& section : select.sections) {
    if (matches({{section}, {}})) continue;
    std::set<std::string> there;
    for (const Names& tensor : all) there.emplace(tensor.section);
    refuse(place, "section", section, there);
  }
  for (const std::string& name : select.names) {
    if (matches({select.sections, {name}})) continue;
    std::set<std::string> there;
    const std::vector<bool> in_sections = selected_by(all, {select.sections, {}});
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (in_sections[i]) there.emplace(all[i].names.front());
    }
    refuse(place,
           select.sections.empty()
               ? "tensor"
               : fmt::format("tensor of section {}", base::printable(base::joined(select.sections, " or "))),
           name, there);
  }
}

}  // namespace

std::vector<std::uint32_t> chosen(const codes::View& view, const plan::Catalog& sources, const Selection& select,
                                  std::string_view place) {
  std::vector<std::uint32_t> numbers;
  if (!is_limited(select)) {
    numbers.resize(sources.tensors.size());
    std::iota(numbers.begin(), numbers.end(), 0U);
    return numbers;
  }
  const std::vector<Names> all = names_of(view, sources);
  require_matches(all, select, place);
  const std::vector<bool> selected = selected_by(all, select);
  for (std::uint32_t i = 0; i < selected.size(); ++i) {
    if (selected[i]) numbers.push_back(i);
  }
  return numbers;
}

void refuse_idle_reciprocals(std::initializer_list<const opening::OpenCheckpoint*> sources) {
  // Codecs with scales of columns are those of a system that has had two rules of division.
  const auto has_two_rules = [](const auto& moments) {
    return quant::find_codec(moments.codec).traits().cut == quant::Cut::kAnywhere;
  };
  for (const auto* source : sources) {
    if (std::ranges::any_of(source->quantised, has_two_rules)) return;
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("decoding by reciprocals is for moments whose codes were made so, and '{}' "
                          "has no such: leave the option out",
                          os::shown((*sources.begin())->directory)));
}

plan::Catalog part_of(const plan::Catalog& sources, const std::vector<std::uint32_t>& numbers) {
  plan::Catalog part;
  part.tensors.reserve(numbers.size());
  for (const std::uint32_t number : numbers) part.tensors.push_back(sources.tensors[number]);
  return part;
}

void drop_aliases(const Chosen& chosen, std::map<std::string, std::string>& metadata, interop::Notes& notes) {
  const auto& all = chosen.sources.tensors;
  if (chosen.numbers.size() == all.size() || metadata.empty()) return;
  std::set<std::string_view> left_out;
  for (const plan::CatalogTensor& tensor : all) left_out.insert(tensor.name);
  for (const std::uint32_t number : chosen.numbers) left_out.erase(all[number].name);
  std::erase_if(metadata, [&](const auto& entry) {
    const auto& [other_name, name] = entry;
    if (other_name == "format" || !left_out.contains(name)) return false;
    notes.inform(fmt::format("the metadata's name {} for tensor {} is left out, as the tensor is",
                             interop::in_quotes(other_name), interop::in_quotes(name)));
    return true;
  });
}

void use_all_sources(plan::TensorMap& map, const std::vector<std::uint32_t>& numbers) {
  for (std::uint32_t i = 0; i < map.sources.size(); ++i) {
    const auto pieces = map.pieces.find(i);
    if (pieces == map.pieces.end()) {
      map.sources[i] = numbers.at(map.sources[i]);
    } else {
      for (plan::MapPiece& piece : pieces->second) piece.source = numbers.at(piece.source);
    }
  }
}

namespace {

/// F8, F6 and F4 of all kinds.
bool is_small_float(DType dtype) { return bits_of(dtype) <= 8 && name_of(dtype).starts_with('F'); }

[[noreturn]] void refuse_cast(const plan::CatalogTensor& tensor, DType to, std::string_view why) {
  throw Error(ErrorKind::kUsage, fmt::format("--dtype {}: tensor '{}' (section {}) {}", name_of(to),
                                             base::printable(tensor.name), base::printable(tensor.section), why));
}

/// Throws for a weight that the view itself rounds: it would be rounded from the unrounded values, not twice.
void require_unrounded(const codes::View& view, const codes::ViewTensor& made, const plan::CatalogTensor& target,
                       DType to) {
  const auto require = [&](const codes::ViewTensor& tensor) {
    if (tensor.origin == codes::Origin::kStored) return;
    const bool is_widened = tensor.origin == codes::Origin::kCast &&
                            bits_of(view.stored->tensors.at(tensor.source).dtype) < bits_of(tensor.dtype);
    if (!is_widened) refuse_cast(target, to, "is made from other tensors: convert without --dtype first");
  };
  if (made.origin != codes::Origin::kMapped) return require(made);
  for (const plan::MapPiece& piece : view.mapped.at(made.source)) require(view.sources.at(piece.source));
}

/// "layers.0.q_proj" for "layers.0.q_proj.weight"; empty for a name without a dot.
std::string_view module_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

/// Whether the last part of a tensor's name ends so.
bool ends_in(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Whether a tensor can be the codes of a weight. Buffers of positions are I64, masks are called masks or bias.
bool may_be_codes(const plan::CatalogTensor& tensor) {
  switch (tensor.dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32: break;
    default:
      if (!is_small_float(tensor.dtype)) return false;
  }
  return tensor.shape.size() >= 2 && !ends_in(tensor.name, {"bias", "mask", "_ids", "_index"});
}

/// Throws for codes with scales: floats in the module of an integer weight, or in one that has the weight's own name.
/// Configurations name quantised weights in many places and formats, so the tensors decide.
void refuse_scales(const plan::Catalog& targets, DType to) {
  const auto is_weight = [](const plan::CatalogTensor& tensor) { return tensor.section == format::kModelSection; };
  std::map<std::string_view, const plan::CatalogTensor*> codes;  // by module, and by name
  for (const plan::CatalogTensor& tensor : targets.tensors) {
    if (!is_weight(tensor) || !may_be_codes(tensor)) continue;
    codes.emplace(tensor.name, &tensor);
    const std::string_view module = module_of(tensor.name);
    // Names without a dot may be those of unrelated tensors.
    if (!module.empty() || tensor.name.ends_with("weight")) codes.emplace(module, &tensor);
  }
  if (codes.empty()) return;
  for (const plan::CatalogTensor& tensor : targets.tensors) {
    if (!is_weight(tensor) || !quant::is_float(tensor.dtype) || ends_in(tensor.name, {"bias"})) continue;
    const auto found = codes.find(module_of(tensor.name));
    if (found == codes.end()) continue;
    refuse_cast(
        tensor, to,
        fmt::format("can be a scale of '{}', which is {}, and scales must stay as they are: dequantise the model "
                    "first, or choose other tensors with --name",
                    base::printable(found->second->name), name_of(found->second->dtype)));
  }
}

/// Throws for a config.json of quantised weights; notes a dtype in it that will differ.
void check_config(const std::string& config, DType to, interop::Notes& notes) {
  if (config.empty()) return;
  base::Json parsed;
  try {
    parsed = base::Json::parse(config, "config.json", {.dialect = base::JsonDialect::kPython});
  } catch (const Error& error) {
    notes.omit(fmt::format("whether the weights are codes with scales is unknown: {}", error.what()));
    return;
  }
  if (!parsed.is_object()) return;
  if (const base::Json* quantised = parsed.find("quantization_config"); quantised != nullptr && !quantised->is_null()) {
    throw Error(ErrorKind::kUsage, fmt::format("--dtype {}: config.json has a quantization_config, so floating tensors "
                                               "can be scales of codes: dequantise the model first",
                                               name_of(to)));
  }
  const char* const name = to == DType::kBF16 ? "bfloat16" : to == DType::kF16 ? "float16" : "float32";
  for (const char* key : {"torch_dtype", "dtype"}) {
    const base::Json* said = parsed.find(key);
    if (said == nullptr || !said->is_string() || said->text() == name) continue;
    notes.inform(fmt::format("config.json is taken along unchanged, and its {} is {}, not {}", key,
                             base::printable(said->text()), name));
  }
}

}  // namespace

std::uint64_t cast_weights(plan::Catalog& targets, codes::View& view, DType to, const std::string& config,
                           interop::Notes& notes) {
  check_config(config, to, notes);
  refuse_scales(targets, to);
  std::uint64_t changed = 0;
  bool concerns_some = false;
  for (std::size_t i = 0; i < targets.tensors.size(); ++i) {
    plan::CatalogTensor& target = targets.tensors[i];
    if (target.section != format::kModelSection) continue;
    if (is_small_float(target.dtype)) {
      refuse_cast(target, to,
                  fmt::format("is {}, codes that mean nothing without their scales: dequantise the model "
                              "first",
                              name_of(target.dtype)));
    }
    if (!quant::is_float(target.dtype)) continue;
    concerns_some = true;
    if (target.dtype == to) continue;
    codes::ViewTensor& made = view.tensors.at(i);
    require_unrounded(view, made, target, to);
    made.dtype = target.dtype = to;
    if (made.origin == codes::Origin::kStored) made.origin = codes::Origin::kCast;
    ++changed;
  }
  if (!concerns_some) {
    throw Error(ErrorKind::kUsage, fmt::format("--dtype {} is for floating tensors of section model, and none is "
                                               "converted: leave it out",
                                               name_of(to)));
  }
  if (changed != 0) view.as_stored = false;
  if (changed == 0) notes.omit(fmt::format("all floating tensors of section model are {} already", name_of(to)));
  return changed;
}

}  // namespace cairn::conversion
