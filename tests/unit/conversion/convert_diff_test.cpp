// Conversions keep every byte for every dtype, files do not depend on their writer, and diff reports every difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "cairn/error.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "directory_names.hpp"
#include "faults.hpp"
#include "simulated_save.hpp"
#include "soft_limit.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

void convert_simulated(const fs::path& from, const fs::path& to, int ranks, const char* shards_layout,
                       const Options& write = small_options()) {
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    conversion::ConvertOptions options;
    options.write = write;
    options.read = {"posix", 64 << 10, {}};
    if (shards_layout != nullptr) {
      options.to = "shards";
      options.layout = shards_layout;
    }
    conversion::convert(communicator, from, to, options);
  });
}

conversion::DiffResult diff_simulated(const fs::path& a, const fs::path& b, int ranks) {
  conversion::DiffResult result;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    auto mine = conversion::diff(communicator, a, b, {{"posix", 64 << 10, {}}, {}, false});
    if (communicator.rank() == 0) result = std::move(mine);
  });
  return result;
}

TEST(Convert, ToShardsAndBackIsTheSameOnAnyNumberOfRanks) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 3);
  const fs::path original = root / "checkpoint-1";
  for (const int ranks : {1, 4}) {
    const std::string suffix = std::to_string(ranks);
    convert_simulated(original, root / ("shards" + suffix), ranks, "fsdp=3");
    convert_simulated(root / ("shards" + suffix), root / ("hf" + suffix), 5 - ranks, nullptr);
    convert_simulated(original, root / ("direct" + suffix), ranks, nullptr);
    EXPECT_EQ(data_files(original), data_files(root / ("hf" + suffix)));
    EXPECT_EQ(data_files(original), data_files(root / ("direct" + suffix)));
    expect_loads(root / ("shards" + suffix), 1, Cut::kMixed, 4);
  }
  EXPECT_EQ(data_files(root / "shards1"), data_files(root / "shards4"));
  EXPECT_GE(data_files(root / "shards1").size(), 4U);
}

/// Facts that a resuming program uses: the step, the run, the metadata, the numbers of saving ranks and of blobs.
TEST(Convert, TakesOverWhatTheManifestSaysOfTheRun) {
  const TempDir root;
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    RankState state(small_state(), Cut::kRows, communicator.rank(), 3);
    state.fill(1);
    Extras extras;
    extras.layout = "dp=3";
    extras.metadata = {{"loss", "2.5"}};
    extras.rank_blob.resize(static_cast<std::size_t>(communicator.rank()) + 1, std::byte{7});
    io::WindowStore store;
    checkpoint::Saver(communicator, small_options(), store).save(root / "original", 7, state.sources(), extras);
  });
  const auto manifest_of = [&](const char* name) { return *opening::open_here(root / name).manifest; };
  const format::Manifest original = manifest_of("original");
  convert_simulated(root / "original", root / "hf", 2, nullptr);
  convert_simulated(root / "original", root / "shards", 1, "fsdp=4");
  for (const char* name : {"hf", "shards"}) {
    const format::Manifest made = manifest_of(name);
    EXPECT_TRUE(made.has_step) << name;
    EXPECT_EQ(made.step, 7U) << name;
    EXPECT_EQ(made.run_id, original.run_id) << name;
    EXPECT_EQ(made.user_metadata, original.user_metadata) << name;
    EXPECT_EQ(made.ranks, 3U) << name;
  }
  EXPECT_EQ(manifest_of("hf").layout, "dp=3");
  EXPECT_EQ(manifest_of("hf").rank_blobs, 3U);
  EXPECT_EQ(manifest_of("shards").layout, "fsdp=4");
}

TEST(Convert, RefusesAnExistingDestinationAndLeavesNothingAfterAFault) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 3);
  EXPECT_THROW(convert_simulated(root / "checkpoint-1", root / "checkpoint-1", 2, nullptr), Error);
  os::set_faults("write:path=/out.");
  EXPECT_THROW(convert_simulated(root / "checkpoint-1", root / "out", 2, nullptr), Error);
  os::set_faults("");
  EXPECT_FALSE(fs::exists(root / "out"));
  EXPECT_EQ(names_beginning_with(root.path(), "out"), std::vector<std::string>{});
  EXPECT_THROW(convert_simulated(root / "checkpoint-1", root / "out", 2, "tp=4,what=2"), Error);
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Convert, TouchesNothingOfTheUserBesideItsDestination) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 3);
  const std::vector<std::string> users = {"out.0123456789abcdef.partial", "out.partial", "out.replaced"};
  for (const std::string& name : users) {
    fs::create_directory(root / name);
    write_file(root / name / "file", name);
  }
  convert_simulated(root / "checkpoint-1", root / "out/", 2, nullptr);  // "out/" means "out"
  std::vector<std::string> expected = users;
  expected.insert(expected.begin(), "out");
  EXPECT_EQ(names_beginning_with(root.path(), "out"), expected);
  for (const std::string& name : users) EXPECT_EQ(read_file(root / name / "file"), name);
  EXPECT_EQ(data_files(root / "out"), data_files(root / "checkpoint-1"));
}

TEST(Convert, ADestinationThatComesIntoBeingMeanwhileIsNotReplaced) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 3);
  const TempDir signals;
  const fs::path go = signals / "go";
  os::set_faults("commit.rename:times=1:pause=" + go.string());
  std::thread converting(
      [&] { EXPECT_THROW(convert_simulated(root / "checkpoint-1", root / "out", 2, nullptr), Error); });
  wait_until_paused(go);
  fs::create_directory(root / "out");
  write_file(root / "out" / "file", "mine");
  write_file(go, "");
  converting.join();
  os::set_faults("");
  EXPECT_EQ(names_beginning_with(root.path(), "out"), std::vector<std::string>{"out"});
  EXPECT_EQ(read_file(root / "out" / "file"), "mine");
}

Options options_of_many_files() {
  Options options = small_options();
  options.files.max_bytes = 4096;
  return options;
}

/// The conversion has input and output files open at the same time.
TEST(Convert, MoreFilesThanMayBeOpenAreOpenByTurns) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kRows, 1, options_of_many_files());
  {
    const SoftLimit limit = descriptors_left(20);
    convert_simulated(root / "checkpoint-1", root / "out", 1, nullptr, options_of_many_files());
  }
  EXPECT_GE(data_files(root / "out").size(), 25U);
  EXPECT_EQ(data_files(root / "out"), data_files(root / "checkpoint-1"));
}

TEST(Diff, MoreFilesThanMayBeOpenAreOpenByTurns) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kRows, 1, options_of_many_files());
  EXPECT_GE(data_files(root / "checkpoint-1").size(), 25U);
  const SoftLimit limit = descriptors_left(20);
  EXPECT_TRUE(diff_simulated(root / "checkpoint-1", root / "checkpoint-1", 1).equal());
}

TEST(Diff, EqualAndDifferent) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 3);
  convert_simulated(root / "checkpoint-1", root / "shards", 2, "fsdp=2");
  std::uint64_t bytes = 0;
  for (const StateTensor& tensor : small_state()) bytes += whole_content(tensor, 0, 0).size();
  for (const int ranks : {1, 4}) {
    const auto equal = diff_simulated(root / "checkpoint-1", root / "shards", ranks);
    EXPECT_TRUE(equal.equal());
    EXPECT_EQ(equal.bytes_compared, bytes);
    EXPECT_EQ(equal.tensors, small_state().size());
  }
  save_simulated(root.path(), 2, Cut::kMixed, 3);
  const auto different = diff_simulated(root / "checkpoint-1", root / "checkpoint-2", 3);
  EXPECT_FALSE(different.equal());
  const auto state = small_state();
  const auto not_empty =
      std::ranges::count_if(state, [](const StateTensor& tensor) { return !whole_content(tensor, 0, 0).empty(); });
  EXPECT_EQ(different.tensors, state.size());
  EXPECT_EQ(different.differences.size(), static_cast<std::size_t>(not_empty));
  std::uint64_t differing = 0;
  for (const auto& row : different.differences) {
    EXPECT_EQ(row.verdict, conversion::TensorVerdict::kDiffers) << row.name;
    EXPECT_NE(row.elements, 0U) << row.name;
    differing += row.elements_differing;
  }
  EXPECT_GT(differing, bytes / 8);
}

}  // namespace
}  // namespace cairn::test
