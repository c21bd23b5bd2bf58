// Test names made from parameters.
#pragma once

#include <algorithm>
#include <string>

namespace cairn::test {

/// In GoogleTest's form: "paddle-o1" becomes "paddle_o1".
inline std::string test_name(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// For INSTANTIATE_TEST_SUITE_P with strings as parameters.
inline constexpr auto kNamedByParameter = [](const auto& test) { return test_name(test.param); };

}  // namespace cairn::test
