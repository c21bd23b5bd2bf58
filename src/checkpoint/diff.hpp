// Compares two checkpoints tensor by tensor, whatever their dialects and file splits, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load.hpp"

namespace cairn::checkpoint {

enum class TensorVerdict { kEqual, kDiffers, kOnlyInA, kOnlyInB, kOtherShape, kOtherDtype };

struct TensorDiff {
  std::string section;
  std::string name;
  TensorVerdict verdict = TensorVerdict::kEqual;
  std::uint64_t elements = 0;
  std::uint64_t elements_differing = 0;  ///< by bits
  std::optional<double>
      max_abs_difference;  ///< where the dtype has values to compare; NaN against a number is infinity
  std::string detail;      ///< "[4, 8] against [8, 4]", "BF16 against F32"
};

struct DiffResult {
  std::vector<TensorDiff> tensors;  ///< catalog order, the same on every rank; tensors only in one come too
  std::uint64_t bytes_compared = 0;
  [[nodiscard]] bool equal() const;
};

/// Collective. Same shape but another dtype: values are compared when both decode (BF16 against F32).
DiffResult diff(comm::Communicator& communicator, const std::filesystem::path& a, const std::filesystem::path& b,
                const ReadOptions& options);

}  // namespace cairn::checkpoint
