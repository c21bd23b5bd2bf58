// What the tests of os share: rules that end with the test, and the kind and text of an error.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "cairn/error.hpp"
#include "os/fault.hpp"

namespace cairn::os {

class Faults {
 public:
  explicit Faults(std::string_view rules) { set_faults(rules); }
  ~Faults() { set_faults(""); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

/// The text of the Error that `call` throws, which must be of that kind and one line; "no error" when it throws none.
inline std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace cairn::os
