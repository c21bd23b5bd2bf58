// Helpers for the tests of os: a file, and the kind and message of an error.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "faults.hpp"
#include "os/file.hpp"

namespace cairn::os {

using test::Faults;

inline void touch(const std::filesystem::path& path, std::string_view content = "x") {
  write_new_file(path, base::as_bytes(content));
}

/// The message of the Error that `call` throws, which must have that kind and one line; "no error" if it does not
/// throw.
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
