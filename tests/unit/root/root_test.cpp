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

TEST(Root, AMissingStepIsSaidWithTheStepsThatThereAre) {
  const TempDir root;
  const auto text_of = [&](const fs::path& path, Missing missing) {
    const Error error = root::does_not_exist(path);
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_EQ(error.missing(), missing) << error.what();
    EXPECT_EQ(error.path(), path.native());
    const std::string text = error.what();
    const std::string named = "'" + path.string() + "' does not exist";
    EXPECT_EQ(text.substr(0, named.size()), named);
    return text.substr(named.size());
  };
  const std::string has = ": '" + root.path().string() + "' has ";
  const auto of_step = [&](const char* name) { return text_of(root / name, Missing::kStep); };
  EXPECT_EQ(of_step("checkpoint-7"), has + "no checkpoint");
  fs::create_directory(root / "checkpoint-9");
  fs::create_directory(root / "checkpoint-7.0123456789abcdef.partial");
  EXPECT_EQ(of_step("checkpoint-8"), has + "only step 9");
  EXPECT_EQ(of_step("checkpoint-8/"), has + "only step 9");
  EXPECT_EQ(of_step("checkpoint-7"),
            has + "only step 9; step 7 is being saved, or its saver ended before it was whole");
  fs::create_directory(root / "checkpoint-100");
  EXPECT_EQ(of_step("checkpoint-8"), has + "steps 9 and 100");
  for (int i = 0; i < 10; ++i) fs::create_directory(root / ("checkpoint-" + std::to_string(2000 + 2 * i)));
  EXPECT_EQ(of_step("checkpoint-2001"), has + "12 steps, from 9 to 2018; the nearest are 2000 and 2002");
  EXPECT_EQ(of_step("checkpoint-6000"), has + "12 steps, from 9 to 2018");
  EXPECT_EQ(text_of(root / "other", Missing::kUnspecified), "");
  EXPECT_EQ(text_of(root / "nowhere" / "checkpoint-7", Missing::kUnspecified), "");
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
