// The catalog of a conversion that codes moments, with the source tensors of each of its tensors. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codes/coding_plan.hpp"
#include "plan/catalog.hpp"

namespace cairn::conversion {

/// Two moments of the source that become codes.
struct PairToCode {
  codes::CodedTensor tensor;
  std::uint32_t first = 0;  ///< numbers in the source's catalog
  std::uint32_t second = 0;
};

/// The origin of a tensor to be written.
struct TensorOrigin {
  std::uint32_t source = 0;  ///< if `pair` is empty: the number of the tensor in the source, which is unchanged
  std::optional<std::uint32_t> pair;
  std::size_t part = 0;  ///< number of the part in the pair's codec
};

struct CodedCatalog {
  plan::Catalog catalog;
  std::vector<TensorOrigin> origins;  ///< of each tensor of the catalog
  std::vector<PairToCode> pairs;
};

/// Every tensor unchanged.
CodedCatalog plain_catalog(const plan::Catalog& source);

/// Throws Error(kUsage) for a moment that is not F32, Error(kState) for a moment whose partner is missing or has a
/// different shape.
CodedCatalog code_catalog(const plan::Catalog& source, const std::map<std::string, const quant::Codec*>& codecs);

}  // namespace cairn::conversion
