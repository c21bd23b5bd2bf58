// What can be wrong with a safetensors file: the error kinds of the reference implementation, and three of our own for
// what it lets pass.
#pragma once

#include <string>

#include "cairn/error.hpp"

namespace cairn::format {

enum class SafetensorsErrorKind {
  kHeaderTooSmall,
  kHeaderTooLarge,
  kInvalidHeaderLength,
  kInvalidHeader,                 // not UTF-8
  kInvalidHeaderDeserialization,  // JSON syntax, types, missing fields, unknown dtype, depth, numbers
  kInvalidOffset,
  kValidationOverflow,
  kMisalignedSlice,
  kTensorInvalidInfo,
  kMetadataIncompleteBuffer,
  kDuplicateKey,    // stricter than the reference, which lets the last one win
  kRankTooLarge,    // more than kMaxRank dimensions
  kNotSafetensors,  // recognisably something else, e.g. a git-lfs pointer
};

/// The reference's name of the kind, e.g. "HeaderTooSmall".
const char* name_of(SafetensorsErrorKind kind);

class SafetensorsError : public Error {
 public:
  SafetensorsError(SafetensorsErrorKind kind, const std::string& message)
      : Error(ErrorKind::kFormat, message), safetensors_kind_(kind) {}
  [[nodiscard]] SafetensorsErrorKind safetensors_kind() const noexcept { return safetensors_kind_; }

 private:
  SafetensorsErrorKind safetensors_kind_;
};

}  // namespace cairn::format
