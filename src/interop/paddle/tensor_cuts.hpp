// Cuts of weights by PaddleNLP's tensor parallelism, derived from names, since ranks' files do not record the cuts.
//
// A rank's file has slices without the shapes of the whole weights. The names of modules show whether weights are cut
// by rows or columns (families.hpp); a few are cut only if a size in config.json is a multiple of the number of
// ranks. If names are not conclusive, the bytes decide: ranks with equal bytes have copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/paddle/families.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// facts_of() for the directory's config.json. Throws Error(kFormat) if that file is not JSON or is too large.
ModelFacts facts_of(const Reading& reading, std::string_view name);

/// Relation between the tensor-parallel ranks' tensors of a weight.
enum class Copies {
  kUnknown,  ///< bytes cannot be read
  kDiffer,
  kAlike,
  kUniform,  ///< equal tensors whose elements are all the same: copies, or slices of a constant tensor
};

struct TensorCut {
  bool is_cut = false;  ///< otherwise every rank has the whole tensor
  std::size_t dimension = 0;
  std::vector<std::uint64_t> fused = {1};  ///< widths of weights side by side, as in Fused
  bool differs = false;                    ///< every rank has the whole tensor, but with different values
  std::string unknown;                     ///< the reason why the cut is unknown; empty: it is known
};

/// The cut of a weight if each of `ranks` > 1 ranks has a tensor of that shape. Calls `copies` unless the name and
/// config.json show that the weight is cut, or that its cut is unknown.
TensorCut cut_of(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t ranks,
                 const ModelFacts& facts, const std::function<Copies()>& copies);

}  // namespace cairn::interop
