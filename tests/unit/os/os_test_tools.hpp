// Helpers for the tests of os: a file, the kind and text of an error.
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
