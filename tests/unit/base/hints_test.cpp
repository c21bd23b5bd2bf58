// Hints in messages about names that do not exist: distances between names against a plain table, and the nearest name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/hints.hpp"
#include "random.hpp"

namespace cairn::base {
namespace {

/// Levenshtein's distance by its recurrence, without a limit.
std::size_t by_table(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      const std::size_t changed = edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      edits[i][j] = std::min({changed, edits[i - 1][j] + 1, edits[i][j - 1] + 1});
    }
  }
  return edits[a.size()][b.size()];
}

TEST(Hints, EditsAreThoseOfTheTableUpToTheLimit) {
  std::mt19937_64 random = test::make_random();
  const auto text = [&] {
    std::string made(random() % 9, 'a');
    for (char& c : made) c = static_cast<char>('a' + random() % 3);
    return made;
  };
  std::size_t below = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string a = text(), b = text();
    const std::size_t most = random() % 7;
    const std::size_t expected = std::min(by_table(a, b), most + 1);
    EXPECT_EQ(edits_between(a, b, most), expected) << a << ' ' << b << ' ' << most;
    below += expected <= most ? 1 : 0;
  }
  EXPECT_GT(below, 1000U);
}

std::string nearest(const std::string& wanted, const std::vector<std::string>& names) {
  NearestName found(wanted);
  for (const std::string& name : names) found.consider(name);
  return found.found();
}

TEST(Hints, TheNearestNameIsOneThatAUserMayHaveMeant) {
  const std::vector<std::string> names = {"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "ln_f.bias", "a", ""};
  EXPECT_EQ(nearest("wte.weigth", names), "wte.weight");
  EXPECT_EQ(nearest("wt.weight", names), "wte.weight");
  EXPECT_EQ(nearest("model.wte.weight", names), "wte.weight");
  EXPECT_EQ(nearest("c_attn.weight", names), "h.0.attn.c_attn.weight");
  EXPECT_EQ(nearest("h.0.attn.c_atn.weight", names), "h.0.attn.c_attn.weight");
  EXPECT_EQ(nearest("lm_head", names), "");
  EXPECT_EQ(nearest("b", names), "a");
  EXPECT_EQ(nearest("", names), "a");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Hints, AListOfNamesIsCut) {
  const std::vector<std::string> names = {"a", "b\n", "c", "d"};
  EXPECT_EQ(quoted_names({}), "");
  EXPECT_EQ(quoted_names(std::span(names).first(1)), "'a'");
  EXPECT_EQ(quoted_names(std::span(names).first(2)), "'a' and 'b\\x0a'");
  EXPECT_EQ(quoted_names(names, 4), "'a', 'b\\x0a', 'c' and 'd'");
  EXPECT_EQ(quoted_names(names, 2), "'a', 'b\\x0a' and 2 more");
}

}  // namespace
}  // namespace cairn::base
