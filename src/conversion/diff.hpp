// Compares two checkpoints tensor by tensor, whatever their dialects and file splits, in bounded memory.
//
// The views of both (view.hpp) are compared: moments in F32, whether they are stored in F32 or as codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/dtype.hpp"
#include "checkpoint/reader.hpp"

namespace cairn::conversion {

// Elements as numbers, only for comparison: numbers computed here are never stored.

/// Whether elements can be compared as numbers: true for BOOL, integers, F16, BF16, F32, F64, F8_E4M3 and F8_E5M2.
bool has_values(DType dtype);

/// Decodes packed little-endian elements. Requires has_values(dtype) and a whole number of elements.
std::vector<double> decode_values(DType dtype, std::span<const std::byte> data);

enum class TensorVerdict { kEqual, kClose, kDiffers, kOnlyInA, kOnlyInB, kOtherShape, kOtherDtype };

struct TensorDiff {
  std::string section;
  std::string name;
  TensorVerdict verdict = TensorVerdict::kEqual;
  std::uint64_t elements = 0;
  std::uint64_t elements_differing = 0;      ///< by bits, or by value if the dtypes differ
  std::uint64_t elements_outside = 0;        ///< differing elements that are beyond the tolerance; without a tolerance,
                                             ///< all of them
  std::optional<double> max_abs_difference;  ///< if the dtype has values; NaN against a number counts as infinity
  std::string detail;                        ///< "[4, 8] against [8, 4]", "BF16 against F32"
};

struct DiffResult {
  std::vector<TensorDiff> tensors;  ///< in catalog order, the same on every rank; tensors of only one side are included
  std::uint64_t bytes_compared = 0;
  [[nodiscard]] bool equal() const;
  [[nodiscard]] bool close() const;  ///< every tensor is equal or close
};

/// Values a and b are close when |a - b| <= absolute + relative * |b|, when they are equal, or when both are NaN.
/// Elements of dtypes without values (F4, F6 ...) are close only if their bits are equal. If `relative` and `absolute`
/// are 0, all bits must be equal.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
  [[nodiscard]] bool is_none() const { return relative == 0 && absolute == 0; }
};

struct DiffOptions {
  checkpoint::ReadOptions read;
  Tolerance tolerance;
  bool decode_by_reciprocals = false;  ///< as in Quantisation
};

/// Collective. If only the dtypes of a tensor differ, its values are compared if both dtypes have values (BF16 against
/// F32), but the tensor never counts as close. Throws Error(kUsage) for a tolerance that is negative, infinite or NaN.
DiffResult diff(comm::Communicator& communicator, const opening::Parts& a, const opening::Parts& b,
                const DiffOptions& options);

}  // namespace cairn::conversion
