// How Paddle calls the tensors of an optimizer: "<parameter>/moment1_0", and with quantised moments their scales.
#pragma once

#include <string_view>

namespace cairn::interop {

inline constexpr std::string_view kFirstMoment = "/moment1_0";
inline constexpr std::string_view kSecondMoment = "/moment2_0";
inline constexpr std::string_view kScales = "@scales";
inline constexpr std::string_view kMinScales = "@min_scales";
inline constexpr std::string_view kMaxScales = "@max_scales";

inline bool is_scale_name(std::string_view name) {
  return name.ends_with(kScales) || name.ends_with(kMinScales) || name.ends_with(kMaxScales);
}

}  // namespace cairn::interop
