// The manifest's key "rebuilt": sections of which tensors were left out because another section has them in another dtype.
//
// A reader makes each tensor of `from` that `section` lacks, under the same name, in `dtype`. FORMAT.md has the fields.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/dtype.hpp"

namespace cairn::format {

inline constexpr const char* kRebuiltKey = "rebuilt";
inline constexpr std::string_view kModelSection = "model";
inline constexpr std::string_view kMasterWeightsSection = "master_weights";

/// kMasterWeightsSection in F32 from kModelSection, or kModelSection in BF16 or F16 from kMasterWeightsSection.
struct Rebuilt {
  std::string_view section;
  std::string_view from;
  DType dtype = DType::kF32;

  friend bool operator==(const Rebuilt&, const Rebuilt&) = default;
};

/// Of a manifest's unknown keys; nothing where "rebuilt" is not among them. Throws Error(kFormat) naming `path` for anything
/// but those rules.
std::vector<Rebuilt> parse_rebuilt(const base::Json& extra, std::string_view path);

}  // namespace cairn::format
