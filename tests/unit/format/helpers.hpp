// Helpers for the tests of the format layer: test data as strings, safetensors files made by hand, and expected errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "expect_error.hpp"
#include "format/safetensors.hpp"

namespace cairn::format::testing {

using test::expect_error;
using test::expect_one_line;

inline std::string test_data(const std::string& name) {
  const char* root = std::getenv("CAIRN_TEST_DATA");
  if (root == nullptr) throw std::runtime_error("CAIRN_TEST_DATA is not set");
  return std::string(root) + "/" + name;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The eight bytes before a header of `length` bytes.
inline std::string length_prefix(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  return out;
}

/// Reads the header of a safetensors file, given as bytes, in the usual steps: prefix, length, JSON.
inline SafetensorsHeader read_safetensors(const std::string& file, const std::string& path) {
  const std::string_view all(file);
  const std::uint64_t length = header_length(base::as_bytes(all.substr(0, 64)), file.size(), path);
  return parse_header(all.substr(kPrefixBytes, length), file.size(), path);
}

/// Parses the header `json` of a file with `data_bytes` bytes of data.
inline SafetensorsHeader parse(std::string_view json, std::uint64_t data_bytes) {
  return parse_header(json, kPrefixBytes + json.size() + data_bytes, "dir/x.safetensors");
}

template <class Action>
void expect_safetensors_error(SafetensorsErrorKind kind, Action action, std::initializer_list<std::string_view> parts) {
  try {
    action();
  } catch (const SafetensorsError& error) {
    EXPECT_STREQ(name_of(error.safetensors_kind()), name_of(kind)) << error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    test::expect_one_line(error.what(), parts);
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected " << name_of(kind);
}

}  // namespace cairn::format::testing
