// Finds the coded moments of Paddle's optimizer, and checks the parts in which they are stored.
#include "interop/paddle/moments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "interop/paddle/paddle.hpp"
#include "quant/boxes.hpp"

namespace cairn::interop {

// Tensors are grouped by parameter; then each coded parameter is compared with the parts that its codec stores.

namespace {

/// The stored tensors of one parameter's moments, by the suffix after the parameter's name: "/moment1_0@scales".
using Family = std::map<std::string, const format::PlacedTensor*, std::less<>>;

using Families = std::map<std::string, Family>;

/// Families by section.
std::map<std::string, Families, std::less<>> families_of(const std::vector<format::PlacedTensor>& tensors,
                                                         const std::set<std::string, std::less<>>& sections) {
  std::map<std::string, Families, std::less<>> families;
  for (const auto& tensor : tensors) {
    if (!sections.contains(tensor.section)) continue;
    const std::size_t slash = tensor.name.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string rest(tensor.name.substr(slash));
    if (rest.starts_with(kFirstMoment) || rest.starts_with(kSecondMoment)) {
      families[std::string(tensor.section)][std::string(tensor.name.substr(0, slash))].emplace(rest, &tensor);
    }
  }
  return families;
}

bool is_coded(const Family& family) {
  return std::any_of(family.begin(), family.end(), [](const auto& member) {
    const DType dtype = member.second->dtype;
    return dtype == DType::kI8 || dtype == DType::kU8 || is_scale_name(member.first);
  });
}

const std::string& file_of(const format::PlacedTensor& tensor, const Reading& reading) {
  return std::next(reading.directory().safetensors.begin(), tensor.file)->first;
}

Error missing(const quant::Codec& codec, const std::string& name, const Family& family, const Reading& reading) {
  return reading.error(ErrorKind::kFormat, file_of(*family.begin()->second, reading),
                       fmt::format("tensor {} is missing: {} stores it beside {}, which is here", in_quotes(name),
                                   codec.traits().name, in_quotes(family.begin()->second->name)));
}

QuantisedMoments check_family(const quant::Codec& codec, const std::string& section, const std::string& parameter,
                              Family family, const Reading& reading) {
  QuantisedMoments out;
  out.codec = codec.traits().name;
  out.section = section;
  out.first = parameter + std::string(kFirstMoment);
  out.second = parameter + std::string(kSecondMoment);
  // Both codecs store codes of the parameter's shape under the second moment's name.
  const auto codes = family.find(kSecondMoment);
  if (codes == family.end()) throw missing(codec, out.second, family, reading);
  out.shape.assign(codes->second->shape.begin(), codes->second->shape.end());
  if (const std::string reason = codec.left_alone(out.shape); !reason.empty()) {
    throw reading.error(ErrorKind::kFormat, file_of(*codes->second, reading),
                        fmt::format("tensor {} cannot be codes of {}: {}", in_quotes(out.second), out.codec, reason));
  }
  const Family all = family;
  for (const quant::Part& part : codec.parts(out.shape)) {
    const std::string name = quant::stored_name(part, {out.first, out.second});
    const auto stored = family.find(name.substr(parameter.size()));
    if (stored == family.end()) throw missing(codec, name, all, reading);
    try {
      quant::check_stored(codec, name, part, stored->second->dtype,
                          {stored->second->shape.begin(), stored->second->shape.end()});
    } catch (const Error& error) {
      throw reading.error(error.kind(), file_of(*stored->second, reading), error.what());
    }
    out.parts.push_back(name);
    family.erase(stored);
  }
  if (family.empty()) return out;
  const format::PlacedTensor& extra = *family.begin()->second;
  throw reading.error(ErrorKind::kFormat, file_of(extra, reading),
                      fmt::format("holds tensor {} as well, which {} does not store beside {}", in_quotes(extra.name),
                                  out.codec, in_quotes(out.second)));
}

}  // namespace

const quant::Codec* codec_of_stage(const DataSet& set, const Reading& reading) {
  const std::string stage = quant_stage(set);
  if (stage == "O0") return nullptr;
  if (stage == "O1") return &quant::find_codec("paddle-o1");
  if (stage == "O2") return &quant::find_codec("paddle-o2");
  throw reading.error(
      ErrorKind::kFormat, set.index_file,
      fmt::format("the optimizer is quantised with the unknown stage {}; known are O1 and O2", in_quotes(stage)));
}

std::vector<QuantisedMoments> find_quantised_moments(const std::vector<format::PlacedTensor>& tensors,
                                                     const DataSets& sets, const Reading& reading) {
  std::set<std::string, std::less<>> sections;
  for (const auto& [name, set] : sets) {
    if (is_quantised_paddle(set)) sections.insert(set.section);
  }
  const auto families = families_of(tensors, sections);
  std::vector<QuantisedMoments> found;
  for (const auto& [name, set] : sets) {
    if (!is_quantised_paddle(set)) continue;
    const quant::Codec& codec = *codec_of_stage(set, reading);
    const auto of_section = families.find(set.section);
    if (of_section == families.end()) continue;
    for (const auto& [parameter, family] : of_section->second) {
      if (is_coded(family)) found.push_back(check_family(codec, set.section, parameter, family, reading));
    }
  }
  return found;
}

}  // namespace cairn::interop
