// The hint that names the folders with data, for those who point at a folder too high.
#include "interop/folders.hpp"

#include <gtest/gtest.h>

#include "cairn/error.hpp"

namespace cairn::interop::test {
namespace {

/// The hint for a tree: folder -> names in it; those that end in '/' are folders, and "!" cannot be listed.
std::string hint_for(const std::map<std::string, std::vector<std::string>>& tree,
                     const std::vector<std::string>& folders) {
  return hint_of_folders(folders, [&](const std::string& folder) {
    std::vector<FolderEntry> entries;
    for (std::string name : tree.at(folder)) {
      if (name == "!") throw Error(ErrorKind::kIo, "no permission");
      const bool is_folder = name.ends_with('/');
      if (is_folder) name.pop_back();
      entries.push_back({.name = folder + "/" + name, .size_bytes = 1, .is_folder = is_folder});
    }
    return entries;
  });
}

TEST(Folders, WithDataAreNamed) {
  EXPECT_EQ(hint_for({{"a", {"x.safetensors"}}, {"b", {"notes.txt"}}}, {"a", "b"}),
            "its folder a holds data files: give that folder");
  EXPECT_EQ(hint_for({{"a", {"x.safetensors"}}, {"b", {"model_state.pdparams"}}}, {"a", "b"}),
            "its folders a, b hold data files: give one of them");
  EXPECT_EQ(hint_for({{"a", {"b/"}}, {"a/b", {"x.safetensors"}}}, {"a"}),
            "its folder a/b holds data files: give that folder");
}

TEST(Folders, WithFilesThatAreNotReadHaveTheReason) {
  const std::string hint = hint_for({{"a", {"__0_0.distcp"}}}, {"a"});
  EXPECT_TRUE(hint.starts_with("its folder a: .distcp files of torch DCP are not read")) << hint;
  EXPECT_EQ(hint_for({{"1", {"_CHECKPOINT_METADATA"}}, {"2", {"_CHECKPOINT_METADATA"}}}, {"1", "2"}),
            "its folders 1, 2: checkpoints of Orbax are not read");
}

TEST(Folders, OfSingleRanksAreNotToBeGiven) {
  EXPECT_EQ(hint_for({{"rank_0", {"x.safetensors"}}, {"rank_1", {"x.safetensors"}}}, {"rank_0", "rank_1"}),
            "its folders rank_0, rank_1 hold what single ranks saved, which is not read");
}

TEST(Folders, WithoutDataGiveNoHint) {
  EXPECT_EQ(hint_for({}, {}), "");
  EXPECT_EQ(hint_for({{"a", {"notes.txt"}},
                      {"b", {"!"}},
                      {"c.partial", {"x.safetensors"}},
                      {"d", {"._x.safetensors"}},
                      {".cache", {"x.safetensors"}}},
                     {"a", "b", "c.partial", "d", ".cache"}),
            "");
}

TEST(Folders, WithoutPermissionDoNotHideOthers) {
  EXPECT_EQ(hint_for({{"a", {"!"}}, {"b", {"x.safetensors"}}}, {"a", "b"}),
            "its folder b holds data files: give that folder");
}

}  // namespace
}  // namespace cairn::interop::test
