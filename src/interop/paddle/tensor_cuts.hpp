// How PaddleNLP's tensor parallelism cuts a weight: known by names, since no file of a rank says it.
//
// A rank's file has slices, and not the shapes of the whole weights. What is cut, and whether by rows or columns, its
// model classes fix by the names of modules; a few weights only where their size is a multiple of the ranks, which
// config.json tells. What no name tells is decided by the bytes: ranks that have the same have copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/reading.hpp"

namespace cairn::interop {

/// What is known of a model.
struct ModelFacts {
  std::string family;  ///< "llama": one of those whose rules are known; empty: another
  std::optional<std::uint64_t> vocabulary;
  std::optional<std::uint64_t> key_value_heads;
  bool is_tied = false;  ///< head and embedding are one weight
};

/// Of config.json; where it says no family, `name` of a weight may. Throws Error(kFormat) for a file that is not JSON.
ModelFacts facts_of(const Reading& reading, std::string_view name);

/// Relation between the tensor-parallel ranks' tensors of a weight.
enum class Copies {
  kUnknown,  ///< bytes cannot be read
  kDiffer,
  kAlike,
  kUniform,  ///< equal, but all elements are the same: copies, or slices of a constant tensor
};

struct TensorCut {
  bool is_cut = false;  ///< otherwise every rank has the whole
  std::size_t dimension = 0;
  unsigned fused = 1;    ///< weights side by side, of each of which a rank has its columns
  bool differs = false;  ///< every rank has the whole, and yet they differ
  std::string unknown;   ///< the reason why the cut is unknown; empty: it is known
};

/// The cut of a weight of which each of `ranks` > 1 ranks has a tensor of that shape.
/// `copies` is called unless it is cut.
TensorCut cut_of(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t ranks,
                 const ModelFacts& facts, const std::function<Copies()>& copies);

}  // namespace cairn::interop
