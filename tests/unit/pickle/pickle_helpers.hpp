// Pickles of tests/data and pickles written by hand.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "helpers.hpp"
#include "pickle/pickle.hpp"
#include "pickle/python_objects.hpp"

namespace cairn::format::testing {

/// A pickle with its bytes, which are not moved.
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

/// A string literal that may contain NULs, as a string.
template <std::size_t size>
std::string raw(const char (&text)[size]) {
  return std::string(text, size - 1);
}

inline std::string repeated(std::string_view part, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

/// Qualified names of the globals in a pickle to which python_objects.hpp gives no meaning, sorted, each once.
inline std::set<std::string> opaque_names(const pickle::Pickle& pickle) {
  const std::set<std::string_view> known = {"numpy.core.multiarray._reconstruct",
                                            "numpy.core.numeric._frombuffer",
                                            "numpy.core.multiarray.scalar",
                                            "numpy.ndarray",
                                            "numpy.dtype",
                                            "collections.OrderedDict",
                                            "builtins.tuple",
                                            "builtins.list",
                                            "builtins.set",
                                            "builtins.frozenset",
                                            "builtins.dict",
                                            "builtins.bytes",
                                            "builtins.bytearray",
                                            "builtins.object",
                                            "_codecs.encode",
                                            "copyreg._reconstructor"};
  std::set<std::string> names;
  std::set<std::uint32_t> seen;
  std::vector<pickle::PickleValue> open = {pickle.root()};
  while (!open.empty()) {
    const pickle::PickleValue value = open.back();
    open.pop_back();
    if (!seen.insert(value.id()).second) continue;
    if (value.is(pickle::PickleKind::kGlobal)) {
      const std::string_view name = value.name();
      if (!known.contains(name) && !name.starts_with("ml_dtypes.")) names.emplace(name);
    }
    // The first part of an object is its callable; eval has a meaning only in calls of Paddle's form.
    const std::size_t first = pickle::plain(value).id() != value.id() ? 1 : 0;
    for (std::size_t i = first; i < value.children(); ++i) open.push_back(value.child(i));
  }
  return names;
}

inline void expect_refused(const std::string& bytes, std::initializer_list<std::string_view> parts,
                           const pickle::PickleOptions& options = {}) {
  SCOPED_TRACE(bytes.substr(0, 100));
  const std::string message = test::message_of_error(ErrorKind::kFormat, [&] { (void)HeldPickle(bytes, options); });
  EXPECT_THAT(message, ::testing::StartsWith("dir/x.pdopt: byte "));
  test::expect_one_line(message, parts);
}

}  // namespace cairn::format::testing
