// The catalog of a conversion that codes moments: which tensors of the source it is made from. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codes/coding_plan.hpp"
#include "plan/catalog.hpp"

namespace cairn::checkpoint {

/// Two moments of the source that become codes.
struct PairToCode {
  CodedTensor tensor;
  std::uint32_t first = 0;  ///< numbers in the source's catalog
  std::uint32_t second = 0;
};

/// Where a tensor that is to be written comes from.
struct TensorOrigin {
  std::uint32_t source = 0;  ///< a tensor of the source, as it is; or
  std::optional<std::uint32_t> pair;
  std::size_t part = 0;  ///< of the pair's codec
};

struct CodedCatalog {
  plan::Catalog catalog;
  std::vector<TensorOrigin> origins;  ///< of each tensor of the catalog
  std::vector<PairToCode> pairs;
};

/// Every tensor as it is.
CodedCatalog plain_catalog(const plan::Catalog& source);

/// Throws Error(kUsage) for a moment that is not F32, Error(kState) for one whose partner is missing or has another shape.
CodedCatalog code_catalog(const plan::Catalog& source, const std::map<std::string, const quant::Codec*>& codecs);

}  // namespace cairn::checkpoint
