// Strict UTF-8, and distinct names of all error kinds.
#include <set>

#include "base/text.hpp"
#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

TEST(Utf8, AcceptsExactlyTheWellFormedSequencesOfUpToThreeBytes) {
  // All sequences of 1 and 2 bytes, counted: 128 ASCII; 128 * 128 pairs of ASCII and 1920 two-byte characters.
  int one = 0;
  int two = 0;
  for (int a = 0; a < 256; ++a) {
    const std::string first(1, static_cast<char>(a));
    one += base::is_utf8(first);
    for (int b = 0; b < 256; ++b) two += base::is_utf8(first + static_cast<char>(b));
  }
  EXPECT_EQ(one, 128);
  EXPECT_EQ(two, 128 * 128 + 1920);
  // Three-byte characters: U+0800..U+FFFF without the 2048 surrogates.
  int three = 0;
  for (int a = 0xE0; a < 0xF0; ++a) {
    for (int b = 0; b < 256; ++b) {
      for (int c = 0; c < 256; ++c) {
        three += base::is_utf8(std::string{static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)});
      }
    }
  }
  EXPECT_EQ(three, 0x10000 - 0x800 - 2048);
  int four = 0;
  for (int a = 0xF0; a < 0x100; ++a) {
    for (int b = 0; b < 256; ++b)
      four += base::is_utf8(std::string{static_cast<char>(a), static_cast<char>(b), '\x80', '\xBF'});
  }
  EXPECT_EQ(four * 64 * 64, 0x110000 - 0x10000);
}

TEST(Utf8, FindsThePositionBehindLongAscii) {
  for (std::size_t before = 0; before < 40; ++before) {
    const std::string text = std::string(before, 'a') + "\xff" + std::string(20, 'b');
    EXPECT_EQ(base::find_invalid_utf8(text), before);
    EXPECT_EQ(base::find_invalid_utf8(std::string(before, 'a') + "\u20ac"), std::string::npos);
    EXPECT_EQ(base::find_invalid_utf8(std::string(before, 'a') + "\xe2\x82"), before);
  }
}

TEST(SafetensorsErrorKind, HasDistinctNames) {
  std::set<std::string> names;
  const auto last = static_cast<int>(SafetensorsErrorKind::kNotSafetensors);
  for (int i = 0; i <= last; ++i) names.insert(name_of(static_cast<SafetensorsErrorKind>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(last + 1));
  EXPECT_EQ(names.count("Unknown"), 0u);
}

}  // namespace
}  // namespace cairn::format::testing
