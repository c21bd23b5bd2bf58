// Catalog order.
#include "plan/catalog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "cairn/error.hpp"
#include "seeded.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;

TEST(NaturalOrder, NumbersCompareAsNumbers) {
  const std::vector<std::string> ascending = {"",
                                              "a",
                                              "a.2",
                                              "a.2.b",
                                              "a.10",
                                              "a.10.b",
                                              "a.99999999999999999999999998",
                                              "a.99999999999999999999999999",
                                              "a_",
                                              "b",
                                              "layers.0.w",
                                              "layers.00.w2",
                                              "layers.1.w",
                                              "layers.01.x",
                                              "layers.2.w",
                                              "layers.10.w",
                                              "\xc3\xa9"};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      EXPECT_TRUE(natural_order(ascending[i], ascending[j]) == (i <=> j)) << ascending[i] << " " << ascending[j];
    }
  }
  EXPECT_TRUE(std::is_lt(natural_order("a01", "a1")));
  EXPECT_TRUE(std::is_gt(natural_order("a1", "a01")));
  EXPECT_TRUE(std::is_lt(natural_order("a01b", "a1c")));
  EXPECT_TRUE(std::is_lt(natural_order("a1b", "a01c")));
}

TEST(NaturalOrder, IsATotalOrder) {
  plan_test::Seeded random("NaturalOrder.IsATotalOrder");
  SCOPED_TRACE(random.note());
  const auto text = [&] {
    std::string out(random.between(0, 6), ' ');
    for (char& c : out) c = "0012a./"[random.between(0, 6)];
    return out;
  };
  for (int i = 0; i < 100'000; ++i) {
    const std::string a = text();
    const std::string b = text();
    const std::string c = text();
    ASSERT_EQ(natural_order(a, b) == 0, a == b) << a << " " << b;
    ASSERT_EQ(natural_order(a, b) < 0, natural_order(b, a) > 0) << a << " " << b;
    if (natural_order(a, b) < 0 && natural_order(b, c) < 0) {
      ASSERT_TRUE(natural_order(a, c) < 0) << a << " " << b << " " << c;
    }
  }
}

TEST(SectionOrder, KnownSectionsFirst) {
  const std::vector<std::string> ascending = {"model", "optimizer", "master_weights", "adapter", "a", "ema", "z"};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      EXPECT_TRUE(section_order(ascending[i], ascending[j]) == (i <=> j)) << ascending[i] << " " << ascending[j];
    }
  }
}

TEST(Catalog, AnyInputOrderGivesTheSame) {
  std::vector<CatalogTensor> tensors = {{"optimizer", "l.2", DType::kF32, {1}},
                                        {"ema", "x", DType::kF32, {}},
                                        {"model", "l.10", DType::kBF16, {3}},
                                        {"model", "l.9", DType::kBF16, {3}}};
  const auto sorted = make_catalog(tensors).tensors;
  ASSERT_EQ(sorted.size(), 4U);
  EXPECT_EQ(sorted[0].name, "l.9");
  EXPECT_EQ(sorted[1].name, "l.10");
  EXPECT_EQ(sorted[2].section, "optimizer");
  EXPECT_EQ(sorted[3].section, "ema");
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(make_catalog(tensors).tensors, sorted);
  EXPECT_TRUE(make_catalog({}).tensors.empty());
}

TEST(Catalog, ANameTwiceIsAnError) {
  try {
    make_catalog(
        {{"model", "w", DType::kF32, {1}}, {"optimizer", "w", DType::kF32, {1}}, {"model", "w", DType::kF32, {1}}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kState);
    EXPECT_STREQ(error.what(), "tensor 'w' is listed twice in section model; names must be unique in a section");
  }
}

TEST(CatalogOrder, IsThatOfInCatalogOrder) {
  Seeded random("catalog order");
  const std::vector<std::string> sections = {"optimizer", "model", "ema", "adapter", "", "zeta"};
  const std::vector<std::string> pieces = {"0", "00", "1", "01",       "9", "10", "123456789012",
                                           "a", ".",  "w", "\xc3\xa9", "_"};
  std::size_t compared = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<std::string, std::string>> names(random.between(0, 60));
    for (auto& [section, name] : names) {
      section = sections[random.between(0, sections.size() - 1)];
      for (auto left = random.between(0, 6); left > 0; --left) name += pieces[random.between(0, pieces.size() - 1)];
    }
    std::vector<CatalogKey> keys;
    for (const auto& [section, name] : names) keys.push_back({section, name});
    std::vector<std::uint32_t> expected(keys.size());
    std::iota(expected.begin(), expected.end(), 0U);
    std::stable_sort(expected.begin(), expected.end(), [&](std::uint32_t a, std::uint32_t b) {
      return in_catalog_order(keys[a].section, keys[a].name, keys[b].section, keys[b].name);
    });
    ASSERT_EQ(catalog_order(keys), expected) << Seeded::note();
    compared += keys.size();
  }
  EXPECT_GT(compared, 1000U);
}

}  // namespace
}  // namespace cairn::plan
