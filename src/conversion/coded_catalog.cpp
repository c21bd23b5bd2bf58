#include "conversion/coded_catalog.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"

namespace cairn::conversion {
namespace {

using Key = std::pair<std::string, std::string>;

/// The other moment of a pair. Throws Error(kState) if it is missing or has a different shape.
std::uint32_t partner(const plan::Catalog& source, const plan::NumbersByName& numbers,
                      const plan::CatalogTensor& moment, const std::string& name) {
  const auto at = numbers.find({moment.section, name});
  const bool fits = at != numbers.end() && source.tensors[at->second].shape == moment.shape;
  if (fits) return at->second;
  throw Error(ErrorKind::kState,
              fmt::format("tensor '{}' (section {}): '{}' {}; both moments are coded together",
                          base::printable(moment.name), base::printable(moment.section), base::printable(name),
                          at == numbers.end() ? "is missing" : "has another shape"));
}

plan::CatalogTensor part_tensor(const codes::CodedTensor& tensor, std::size_t p) {
  const quant::Part& part = tensor.parts[p];
  plan::CatalogTensor out{tensor.section, quant::stored_name(part, tensor.names), part.dtype, part.shape, {}};
  if (p == 0) out.coding = format::encode_coding(codes::coding_of(tensor));
  return out;
}

}  // namespace

CodedCatalog plain_catalog(const plan::Catalog& source) { return code_catalog(source, {}); }

CodedCatalog code_catalog(const plan::Catalog& source, const std::map<std::string, const quant::Codec*>& codecs) {
  const auto numbers = plan::numbers_by_name(source.tensors);
  CodedCatalog out;
  std::map<Key, TensorOrigin> origins;
  std::vector<plan::CatalogTensor> tensors;
  const auto add = [&](plan::CatalogTensor tensor, const TensorOrigin& origin) {
    origins[{tensor.section, tensor.name}] = origin;
    tensors.push_back(std::move(tensor));
  };
  for (std::uint32_t i = 0; i < source.tensors.size(); ++i) {
    const plan::CatalogTensor& tensor = source.tensors[i];
    const auto codec = codecs.find(tensor.section);
    const auto names = codec == codecs.end() ? std::nullopt : codes::moments_of(tensor.name);
    if (names) quant::require_f32(*codec->second, tensor.name, tensor.dtype);
    if (!names || !codec->second->left_alone(tensor.shape).empty()) {
      add(tensor, {i, std::nullopt, 0});
      continue;
    }
    const bool is_first = names->first == tensor.name;
    const std::uint32_t other = partner(source, numbers, tensor, is_first ? names->second : names->first);
    if (!is_first) continue;
    const auto pair = static_cast<std::uint32_t>(out.pairs.size());
    out.pairs.push_back({codes::make_coded_tensor(*codec->second, tensor), i, other});
    for (std::size_t p = 0; p < out.pairs.back().tensor.parts.size(); ++p) {
      add(part_tensor(out.pairs.back().tensor, p), {0, pair, p});
    }
  }
  out.catalog = plan::make_catalog(std::move(tensors));
  for (const auto& tensor : out.catalog.tensors) out.origins.push_back(origins.at({tensor.section, tensor.name}));
  return out;
}

}  // namespace cairn::conversion
