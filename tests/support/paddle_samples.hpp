// The O1 and O2 directories that Paddle wrote (tests/data/paddle), and their content.
#pragma once

#include <cstddef>
#include <string>

#include "test_name.hpp"

namespace cairn::test {

struct PaddleSample {
  const char* directory;
  const char* truth;  ///< paddle/truth/<truth>.safetensors: the moments before coding
  const char* codec;
  std::size_t coded;  ///< number of parameters with coded moments
  std::size_t kept;   ///< number of parameters whose moments are stored unchanged

  /// A name for GoogleTest.
  [[nodiscard]] std::string name() const { return test_name(directory); }
};

inline constexpr PaddleSample kPaddleSamples[] = {
    {"f-dp2-O1", "f-A", "paddle-o1", 12, 0},        {"n-dp2-O1", "nlp-A", "paddle-o1", 12, 0},
    {"n-dp2-O2-rm", "nlp-A", "paddle-o2", 9, 3},    {"n-fused-tp2-O1", "nlp-G", "paddle-o1", 9, 0},
    {"n-lora-dp2-O1", "nlp-L", "paddle-o1", 12, 0}, {"n-pp2-O1", "nlp-A", "paddle-o1", 12, 0},
    {"n-tp2-O1", "nlp-A", "paddle-o1", 12, 0},      {"n-tp2-O2", "nlp-A", "paddle-o2", 9, 3},
};

}  // namespace cairn::test
