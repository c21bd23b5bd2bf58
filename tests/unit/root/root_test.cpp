// A root's listing, and the files that are carried with a checkpoint.
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "root/root.hpp"
#include "root/root_state.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

TEST(Root, ListsCompletePartialAndBrokenOnes) {
  const TempDir root;
  for (const std::uint64_t step : {9, 10, 100}) save_simulated(root.path(), step, Cut::kRows, 2);
  fs::create_directory(root / "checkpoint-200.0123456789abcdef.partial");
  fs::create_directory(root / "checkpoint-201.partial");  // without a nonce: a user's
  fs::create_directory(root / "checkpoint-0300");
  fs::create_directory(root / "checkpoint-x");
  write_file(root / "checkpoint-400", "a file");
  fs::remove(root / "checkpoint-100" / "cairn.json");
  const auto entries = root::list_root(root.path());
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].step, 9U);
  EXPECT_TRUE(entries[0].is_complete());
  EXPECT_GT(entries[0].bytes, 500'000U);
  EXPECT_EQ(entries[1].step, 10U);
  EXPECT_EQ(entries[2].step, 100U);
  EXPECT_FALSE(entries[2].is_complete());
  EXPECT_NE(entries[2].problem.find("cairn.json"), std::string::npos);
  EXPECT_TRUE(entries[3].partial);
  EXPECT_THROW(root::newest_step(root.path()), Error);
  fs::remove(root / "checkpoint-100" / "cairn.blocks");  // the rest may be any program's
  EXPECT_EQ(root::newest_step(root.path()), 10U);
  EXPECT_EQ(root::newest_step(root / "nowhere"), std::nullopt);
}

TEST(Root, CarriedFilesAndMetadataAreKept) {
  const TempDir root;
  write_file(root / "tokenizer.json", "{\"a\": 1}");
  Extras extras;
  extras.carry_files = {root / "tokenizer.json"};
  extras.carry_texts = {{"config.json", "{}"}};
  extras.metadata = {{"loss", "2.5"}};
  extras.layout = "fsdp=2";
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    RankState state(small_state(), Cut::kRows, communicator.rank(), 2);
    state.fill(1);
    const auto sources = state.sources();
    io::WindowStore store;
    checkpoint::Saver saver(communicator, small_options(), store);
    saver.save(root / "out", 1, sources, extras);
  });
  EXPECT_EQ(read_file(root / "out" / "tokenizer.json"), "{\"a\": 1}");
  const auto opened = opening::open_here(root / "out");
  ASSERT_TRUE(opened.manifest);
  EXPECT_EQ(opened.manifest->user_metadata.at("loss"), "2.5");
  EXPECT_EQ(opened.manifest->layout, "fsdp=2");
  EXPECT_EQ(opened.carried, (std::vector<std::string>{"config.json", "tokenizer.json"}));
  EXPECT_FALSE(fs::exists(root / root::kLatestFile));
}

TEST(Root, WhatCannotBeCarriedIsRefusedBeforeAnythingIsWritten) {
  const TempDir root;
  for (const char* name : {"cairn.json", "../up.json", "a/b.json", "model.safetensors", "/abs"}) {
    Extras extras;
    extras.carry_texts = {{name, "x"}};
    EXPECT_THROW(comm::run_simulated(2,
                                     [&](comm::Communicator& communicator) {
                                       RankState state(small_state(), Cut::kRows, communicator.rank(), 2);
                                       const auto sources = state.sources();
                                       io::WindowStore store;
                                       checkpoint::Saver saver(communicator, small_options(), store);
                                       saver.save(root / "out", 1, sources, extras);
                                     }),
                 Error)
        << name;
    EXPECT_TRUE(fs::is_empty(root.path()));
  }
}

}  // namespace
}  // namespace cairn::test
