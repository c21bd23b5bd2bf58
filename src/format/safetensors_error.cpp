// Names of the safetensors error kinds, as the reference implementation spells them.
#include "format/safetensors_error.hpp"

namespace cairn::format {

const char* name_of(SafetensorsErrorKind kind) {
  switch (kind) {
    case SafetensorsErrorKind::kHeaderTooSmall: return "HeaderTooSmall";
    case SafetensorsErrorKind::kHeaderTooLarge: return "HeaderTooLarge";
    case SafetensorsErrorKind::kInvalidHeaderLength: return "InvalidHeaderLength";
    case SafetensorsErrorKind::kInvalidHeader: return "InvalidHeader";
    case SafetensorsErrorKind::kInvalidHeaderDeserialization: return "InvalidHeaderDeserialization";
    case SafetensorsErrorKind::kInvalidOffset: return "InvalidOffset";
    case SafetensorsErrorKind::kValidationOverflow: return "ValidationOverflow";
    case SafetensorsErrorKind::kMisalignedSlice: return "MisalignedSlice";
    case SafetensorsErrorKind::kTensorInvalidInfo: return "TensorInvalidInfo";
    case SafetensorsErrorKind::kMetadataIncompleteBuffer: return "MetadataIncompleteBuffer";
    case SafetensorsErrorKind::kDuplicateKey: return "DuplicateKey";
    case SafetensorsErrorKind::kRankTooLarge: return "RankTooLarge";
    case SafetensorsErrorKind::kNotSafetensors: return "NotSafetensors";
  }
  return "Unknown";
}

}  // namespace cairn::format
