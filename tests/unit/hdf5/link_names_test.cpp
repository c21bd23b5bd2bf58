// Link names: valid for HDF5, and different for different names.
#include "hdf5/stage_format.hpp"

#include <gtest/gtest.h>

#include <set>

namespace cairn::hdf5 {
namespace {

TEST(LinkNames, ReplaceWhatHdf5CannotHold) {
  EXPECT_EQ(link_name("model.layers.0.mlp.up_proj.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(link_name("layers.0/moment1_0"), "layers.0%2Fmoment1_0");
  EXPECT_EQ(link_name("100%"), "100%25");
  EXPECT_EQ(link_name("a\nb"), "a%0Ab");
  EXPECT_EQ(link_name("."), "%2E");
  EXPECT_EQ(link_name(".."), "..");
  EXPECT_EQ(link_name(""), "%");
  EXPECT_EQ(link_name(std::string("a\0b", 3)), "a%00b");
  EXPECT_EQ(link_name("Gewicht-\xC3\xA4"), "Gewicht-\xC3\xA4");
}

TEST(LinkNames, KeepCairnsOwnGroupApart) {
  EXPECT_EQ(section_link_name("optimizer"), "optimizer");
  EXPECT_EQ(section_link_name("cairn"), "%63airn");
  EXPECT_EQ(section_link_name("%63airn"), "%2563airn");
}

TEST(LinkNames, OfDifferentNamesDiffer) {
  // Every string of up to 4 characters with a special meaning.
  const std::string alphabet = "/%.2F5E";
  std::set<std::string> links;
  std::size_t names = 0;
  std::vector<std::string> last = {""};
  for (int length = 0; length <= 4; ++length) {
    std::vector<std::string> next;
    for (const std::string& name : last) {
      ++names;
      const std::string link = link_name(name);
      EXPECT_TRUE(links.insert(link).second) << name;
      EXPECT_EQ(link.find('/'), std::string::npos);
      EXPECT_NE(link, ".");
      EXPECT_NE(link, "");
      for (const char c : alphabet) next.push_back(name + c);
    }
    last = std::move(next);
  }
  EXPECT_EQ(links.size(), names);
  EXPECT_EQ(names, 1U + 7 + 49 + 343 + 2401);
}

}  // namespace
}  // namespace cairn::hdf5
