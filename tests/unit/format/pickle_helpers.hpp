// Pickles of tests/data and pickles written by hand.
#pragma once

#include <string>
#include <string_view>

#include "helpers.hpp"
#include "pickle/pickle.hpp"

namespace cairn::format::testing {

/// The bytes of a pickle that stay where they are.
struct HeldPickle {
  explicit HeldPickle(std::string content, const pickle::PickleOptions& options = {})
      : bytes(std::move(content)), pickle(pickle::read_pickle(source(), "dir/x.pdopt", options)) {}
  HeldPickle(const HeldPickle&) = delete;
  HeldPickle& operator=(const HeldPickle&) = delete;

  [[nodiscard]] base::ByteSource source() const { return pickle::source_of(base::as_bytes(bytes)); }
  [[nodiscard]] pickle::PickleValue root() const { return pickle.root(); }
  [[nodiscard]] pickle::PickleValue operator[](std::string_view key) const {
    const auto found = pickle.root().find(key);
    if (!found) throw std::runtime_error("the pickle has no '" + std::string(key) + "'");
    return *found;
  }

  std::string bytes;
  pickle::Pickle pickle;
};

inline std::string pickle_file(const std::string& name) { return read_file(test_data("pickles/" + name)); }

/// A string with NULs in it.
template <std::size_t size>
std::string raw(const char (&text)[size]) {
  return std::string(text, size - 1);
}

inline std::string repeated(std::string_view part, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

inline void expect_refused(const std::string& bytes, std::initializer_list<std::string_view> parts,
                           const pickle::PickleOptions& options = {}) {
  SCOPED_TRACE(bytes.substr(0, 100));
  const std::string message = test::message_of_error(ErrorKind::kFormat, [&] { (void)HeldPickle(bytes, options); });
  EXPECT_THAT(message, ::testing::StartsWith("dir/x.pdopt: byte "));
  test::expect_one_line(message, parts);
}

}  // namespace cairn::format::testing
