#include "interop/codings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "format/stored_checkpoint.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"

namespace cairn::interop {
namespace {

/// The tensor with that section and name, or null; found by bisection, since tensors are sorted.
const format::PlacedTensor* find_tensor(const Recognised& recognised, std::string_view section, std::string_view name) {
  const auto& tensors = recognised.tensors;
  const auto key = std::pair(section, name);
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), key, [](const auto& tensor, const auto& wanted) {
    return std::pair(tensor.section, tensor.name) < wanted;
  });
  return at != tensors.end() && at->section == section && at->name == name ? &*at : nullptr;
}

/// Sections of all tensors, by file and name.
using Sections = std::map<std::pair<std::uint32_t, std::string_view>, std::string_view>;

Sections sections_of(const Recognised& recognised) {
  Sections sections;
  for (const auto& tensor : recognised.tensors) {
    if (!tensor.in_parts) sections.insert({{tensor.file, tensor.name}, tensor.section});
    for (const auto& box : tensor.boxes) sections.insert({{box.file, tensor.name}, tensor.section});
  }
  return sections;
}

QuantisedMoments check_coding(const Recognised& recognised, std::string_view section, const format::Coding& coding) {
  QuantisedMoments out{coding, std::string(section), {}};
  const auto wrong = [&](std::string_view what) {
    return Error(ErrorKind::kFormat, fmt::format("moments {}: {}", in_quotes(coding.first), what));
  };
  const auto find = [&]() -> const quant::Codec& {
    try {
      return quant::find_codec(coding.codec);
    } catch (const Error& error) {
      throw wrong(error.what());
    }
  };
  const quant::Codec& codec = find();
  if (!base::try_product(coding.shape)) throw wrong("their shape has more than 2^64 elements");
  if (const std::string reason = codec.left_alone(coding.shape); !reason.empty()) {
    throw wrong(fmt::format("{} does not code them: {}", coding.codec, reason));
  }
  for (const quant::Part& part : codec.parts(coding.shape)) {
    const std::string name = quant::stored_name(part, {coding.first, coding.second});
    const format::PlacedTensor* stored = find_tensor(recognised, section, name);
    if (stored == nullptr) {
      throw wrong(fmt::format("tensor {} is missing, which {} stores for them", in_quotes(name), coding.codec));
    }
    quant::check_stored(codec, name, part, stored->dtype, {stored->shape.begin(), stored->shape.end()});
    out.parts.push_back(name);
  }
  for (const std::string& moment : {out.first, out.second}) {
    const bool is_part = std::find(out.parts.begin(), out.parts.end(), moment) != out.parts.end();
    if (!is_part && find_tensor(recognised, section, moment) != nullptr) {
      throw wrong(fmt::format("{} is stored twice: as it is, and in codes of {}", in_quotes(moment), out.codec));
    }
  }
  return out;
}

}  // namespace

bool has_codings(const format::SafetensorsHeader& header) {
  const auto at = header.metadata.lower_bound(std::string(format::kCodingKey));
  return at != header.metadata.end() && at->first.starts_with(format::kCodingKey);
}

void add_codings(Recognised& recognised, const Reading& reading) {
  const auto& files = reading.directory().safetensors;
  if (std::none_of(files.begin(), files.end(), [](const auto& file) { return has_codings(file.second); })) return;
  const Sections sections = sections_of(recognised);
  for (const auto& [file, header] : files) {
    const auto begin = header.metadata.lower_bound(std::string(format::kCodingKey));
    for (auto at = begin; at != header.metadata.end() && at->first.starts_with(format::kCodingKey); ++at) {
      const std::string context = fmt::format("{}: {}", reading.path_of(file), shown(at->first));
      const format::Coding coding = format::parse_coding(at->second, context);
      const auto name = std::string_view(at->first).substr(format::kCodingKey.size());
      const auto section = sections.find({reading.number(file), name});
      if (section == sections.end()) {
        throw reading.error(
            ErrorKind::kFormat, file,
            fmt::format("tensor {} is missing: the metadata says that it holds codes", in_quotes(name)));
      }
      try {
        recognised.quantised.push_back(check_coding(recognised, section->second, coding));
      } catch (const Error& error) {
        throw reading.error(ErrorKind::kFormat, file, error.what());
      }
    }
  }
  const auto key = [](const QuantisedMoments& m) { return std::tie(m.section, m.first); };
  std::sort(recognised.quantised.begin(), recognised.quantised.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const QuantisedMoments& moments : recognised.quantised) {
    for (const std::string* name : {&moments.first, &moments.second}) {
      if (seen.insert({moments.section, *name}).second) continue;
      throw Error(ErrorKind::kFormat, fmt::format("{}: tensor {} is coded twice", reading.place(), in_quotes(*name)));
    }
  }
}

}  // namespace cairn::interop
