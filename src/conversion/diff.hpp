// Compares two checkpoints tensor by tensor, whatever their dialects and file splits, in bounded memory.
//
// The views of both (view.hpp) are compared: moments in F32, whether they are stored in F32 or as codes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.hpp"
#include "conversion/compare_elements.hpp"

namespace cairn::conversion {

enum class TensorVerdict { kClose, kDiffers, kOnlyInA, kOnlyInB, kOtherShape, kOtherDtype };

struct TensorDiff {
  std::string section;
  std::string name;
  TensorVerdict verdict = TensorVerdict::kDiffers;
  std::uint64_t elements = 0;
  std::optional<Rule> rule = {};         ///< unset if no elements were compared; the counts then mean nothing
  std::uint64_t elements_differing = 0;  ///< as in Findings
  std::uint64_t elements_outside = 0;    ///< differing elements that are beyond the tolerance; without a tolerance, all
  std::optional<Difference> max_abs_difference = {};  ///< if the dtypes have values
  std::string detail = {};                            ///< "[4, 8] against [8, 4]", "BF16 against F32"
};

struct DiffResult {
  std::uint64_t tensors = 0;            ///< of both checkpoints together
  std::vector<TensorDiff> differences;  ///< the tensors that are not equal, in catalog order, the same on every rank;
                                        ///< tensors of only one side are included
  std::uint64_t bytes_compared = 0;
  [[nodiscard]] bool equal() const { return differences.empty(); }
  [[nodiscard]] bool close() const;  ///< every tensor is equal or close
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
