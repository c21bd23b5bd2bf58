// Finds the places of PaddlePaddle ranks' slices in whole tensors.
//
// Files do not record these places. They follow from the ranks, the shape of the model's weight, and for fused weights
// its name. A tensor-parallel rank holds rows or columns: a part of the dimension in which slice and weight differ.
// A rank of sharding v2 holds a range of the flattened parameter, or of a slice of the parameter. Zeros follow the last
// range, so that the ranges of n ranks together have a multiple of n * 256 (or 512) bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/box.hpp"
#include "format/safetensors.hpp"
#include "interop/paddle/families.hpp"
#include "interop/paddle/rank_files.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// A tensor in one rank's file.
struct Fragment {
  const RankFile* file = nullptr;
  const format::TensorEntry* entry = nullptr;
};

/// A box of the whole tensor, and the place of its elements in the rank's tensor.
struct SliceBox {
  Box box;
  std::uint64_t first_elem = 0;
  std::uint64_t row_elems = 0;  ///< as in format::StoredBox
};

struct Slice {
  Fragment fragment;
  std::vector<SliceBox> boxes;
};

enum class CutBy { kNothing, kDimension, kRange };

/// An assembled tensor.
struct WholeTensor {
  std::vector<std::uint64_t> shape;
  CutBy cut = CutBy::kNothing;
  std::size_t dimension = 0;  ///< used with kDimension
  /// At least one slice, each with at least one box; no replicas, and no slices that are only padding.
  std::vector<Slice> slices;
};

/// The parameter that a tensor belongs to, as in the model.
struct Parameter {
  std::string_view name;
  std::optional<std::vector<std::uint64_t>> shape;  ///< in memory, unless may_be_turned; nothing: not in the model
  unsigned element_bytes = 2;                       ///< size of the weight's elements
  bool may_be_turned = false;                       ///< the model's file may have the dimensions in reverse order
  Fused fused = {};
  bool is_turned = false;  ///< the model's file has the dimensions in reverse order
  /// Shapes of the tensor-parallel ranks' slices, if the model was stored so. Flat slices are ranges of these slices.
  std::vector<std::vector<std::uint64_t>> slices = {};
};

/// "q_proj" of "llama.layers.0.self_attn.q_proj.weight".
std::string_view module_of(std::string_view parameter);

/// An error about a tensor of a rank's file; names the tensor and its shape.
Error wrong_fragment(const Fragment& fragment, const Reading& reading, const std::string& text);

/// Requires: at least one fragment; all with the same name, by rank. `is_flat`: the fragments are ranges of flattened
/// parameters. Throws Error(kFormat), naming file and tensor, for slices that do not make up the parameter, or whose
/// place is unknown; a tensor in two files although only one can be right; a different dtype.
WholeTensor put_together(const Parameter& parameter, std::span<const Fragment> fragments, const RankFiles& files,
                         bool is_flat, const Reading& reading);

}  // namespace cairn::interop
