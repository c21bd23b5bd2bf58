// Names of tests that are made of their parameters.
#pragma once

#include <algorithm>
#include <string>

namespace cairn::test {

/// As GoogleTest takes it: "paddle-o1" is "paddle_o1".
inline std::string test_name(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// For INSTANTIATE_TEST_SUITE_P, of parameters that are texts.
inline constexpr auto kNamedByParameter = [](const auto& test) { return test_name(test.param); };

}  // namespace cairn::test
