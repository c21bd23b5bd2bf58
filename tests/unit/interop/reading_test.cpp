// A dialect's input other than the listing and headers: files in other formats, folders, file numbers.
#include "interop/reading.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "interop/dialect.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

constexpr std::string_view kText = "header and numbers";

/// A directory whose caller provides access to files and folders.
TestDirectory with_access() {
  TestDirectory d;
  d.file_of("b.safetensors", {"w"}).file_of("a.safetensors", {"v"});
  d.directory.folders = {"global_step3", "runs"};
  d.directory.access.list = [](const std::string& folder) {
    return std::vector<FolderEntry>{{folder + "/mp_rank_00.pt", kText.size(), false}};
  };
  d.directory.access.open = [](const std::string& file) {
    if (file != "global_step3/mp_rank_00.pt") throw Error(ErrorKind::kNotFound, file);
    return base::ByteSource{kText.size(), [](std::span<std::byte> to, std::uint64_t at_bytes) {
                              std::memcpy(to.data(), kText.data() + at_bytes, to.size());
                            }};
  };
  return d;
}

TEST(Reading, FilesThatAreNoSafetensorsComeAfterThose) {
  const TestDirectory d = with_access();
  Reading reading(d.directory);
  EXPECT_EQ(reading.number("b.safetensors"), 1u);
  EXPECT_EQ(reading.add_file("global_step3/mp_rank_00.pt", 7), 2u);
  EXPECT_EQ(reading.add_file("global_step3/mp_rank_00.pt", 7), 2u);
  ASSERT_EQ(reading.files().size(), 3u);
  EXPECT_EQ(reading.files()[2].size_bytes, 7u);
  EXPECT_EQ(reading.number("global_step3/mp_rank_00.pt"), 2u);
}

TEST(Reading, GivesRangesOfFilesInFolders) {
  const TestDirectory d = with_access();
  Reading reading(d.directory);
  const auto entries = reading.list("global_step3");
  ASSERT_EQ(entries.size(), 1u);
  const base::ByteSource source = reading.open(entries[0].name);
  ASSERT_EQ(source.size_bytes, kText.size());
  std::string part(7, ' ');
  source.read(std::as_writable_bytes(std::span(part)), 11);
  EXPECT_EQ(part, "numbers");
}

TEST(Reading, WithoutAccessThereIsNothingToOpen) {
  const TestDirectory d = TestDirectory().file_of("a.safetensors", {"v"});
  Reading reading(d.directory);
  EXPECT_TRUE(reading.list("global_step3").empty());
  EXPECT_EQ(reading.open("a.bin").size_bytes, 0u);
  EXPECT_EQ(reading.open("a.bin").read, nullptr);
}

TEST(Reading, AFolderThatWasReadIsUsedWhole) {
  const TestDirectory d = with_access();
  Reading reading(d.directory);
  reading.use_folder("global_step3/rank_0");
  EXPECT_TRUE(reading.is_used("global_step3"));
  EXPECT_FALSE(reading.is_used("runs"));
}

TEST(Reading, TensorsThatNoHeaderHasStayWhereTheyAre) {
  Recognised out;
  for (int i = 0; i < 100; ++i) {
    out.add(
        {"model", "w" + std::to_string(i), DType::kF32, {2, 3}, {{0, 64, {{0, 0}, {1, 3}}}, {1, 8, {{1, 0}, {1, 3}}}}});
  }
  ASSERT_EQ(out.tensors.size(), 100u);
  EXPECT_EQ(out.tensors[0].name, "w0");
  EXPECT_EQ(out.tensors[0].boxes[1].file, 1u);
  EXPECT_EQ(tensor_of(out, "model", "w99").boxes.size(), 2u);
}

TEST(Dialects, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Dialect* dialect : dialects()) EXPECT_TRUE(names.insert(dialect->name()).second) << dialect->name();
  EXPECT_GE(names.size(), 3u);
  EXPECT_EQ(dialects().back()->name(), "Hugging Face");  // last: it accepts anything
}

TEST(Dialects, FormsAreFoundByTheirWords) {
  EXPECT_THAT(form_words(), testing::IsSupersetOf({"hf", "shards"}));
  for (const std::string& word : form_words()) EXPECT_EQ(form_called(word).traits().word, word);
  EXPECT_TRUE(form_called("shards").traits().is_sharded);
  try {
    (void)form_called("h5");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("hf"));
  }
}

}  // namespace
}  // namespace cairn::interop::test
