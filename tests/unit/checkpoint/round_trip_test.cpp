// Any partition on any number of ranks saves the same bytes, and any other partition can load them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <utility>

#include "cairn/error.hpp"
#include "directory_names.hpp"
#include "expect_error.hpp"
#include "format/manifest.hpp"
#include "os/file.hpp"
#include "root/root_state.hpp"
#include "simulated_save.hpp"
#include "soft_limit.hpp"

namespace cairn::test {
namespace {

constexpr Cut kCuts[] = {Cut::kReplicated, Cut::kRows,    Cut::kColumns, Cut::kFlat,
                         Cut::kGrid,       Cut::kOneRank, Cut::kMixed};

TEST(RoundTrip, EveryCutSavesAndEveryOtherLoads) {
  const TempDir root;
  std::uint64_t step = 0;
  for (const Cut cut : kCuts) {
    const int ranks = static_cast<int>(1 + step * 2 % 7);
    save_simulated(root.path(), ++step, cut, ranks);
    for (const Cut other : {Cut::kRows, Cut::kMixed}) {
      expect_loads(root::checkpoint_directory(root.path(), step), static_cast<int>(step), other, 4);
    }
  }
  for (const Cut cut : kCuts) {
    for (const int ranks : {1, 2, 3, 6}) expect_loads(root / "checkpoint-1", 1, cut, ranks);
  }
}

TEST(RoundTrip, MoreFilesThanMayBeOpenAreOpenByTurns) {
  Options options = small_options();
  options.files.max_bytes = 4096;
  const TempDir root;
  {
    const SoftLimit limit = descriptors_left(20);
    save_simulated(root.path(), 1, Cut::kRows, 1, options);
    expect_loads(root / "checkpoint-1", 1, Cut::kColumns, 1);
  }
  EXPECT_GE(data_files(root / "checkpoint-1").size(), 25U);
}

TEST(RoundTrip, FilesDependOnTheStateAlone) {
  const TempDir a;
  const TempDir b;
  const TempDir c;
  save_simulated(a.path(), 5, Cut::kMixed, 1);
  save_simulated(b.path(), 5, Cut::kGrid, 4);
  Options large = small_options();
  large.limits.memory_budget_bytes = 1 << 20;
  save_simulated(c.path(), 5, Cut::kFlat, 7, large);
  const auto files = data_files(a / "checkpoint-5");
  ASSERT_GE(files.size(), 10U);
  EXPECT_EQ(files, data_files(b / "checkpoint-5"));
  EXPECT_EQ(files, data_files(c / "checkpoint-5"));
}

TEST(RoundTrip, RanksOfSeveralNodesSaveTheSameFilesAndLoadThem) {
  const TempDir one;
  save_simulated(one.path(), 1, Cut::kMixed, 5);
  const auto files = data_files(one / "checkpoint-1");
  for (const int ranks_per_node : {1, 2, 3}) {
    for (const std::uint64_t aggregators : {0, 1, 2}) {
      SCOPED_TRACE(std::to_string(ranks_per_node) + " ranks per node, " + std::to_string(aggregators) + " aggregators");
      const TempDir several;
      Options options = small_options();
      options.engine.aggregators_per_node = aggregators;
      save_simulated(several.path(), 1, Cut::kMixed, 5, options, ranks_per_node);
      EXPECT_EQ(files, data_files(several / "checkpoint-1"));
      for (const Cut cut : {Cut::kColumns, Cut::kFlat, Cut::kOneRank}) {
        expect_loads(several / "checkpoint-1", 1, cut, 4, 64 << 10, ranks_per_node);
      }
    }
  }
}

/// Bytes of phase "exchange" in a save of two large tensors and a small one by 4 ranks.
std::uint64_t exchanged_bytes(const std::filesystem::path& directory, const Options& options) {
  std::uint64_t bytes = 0;
  const std::vector<StateTensor> tensors = {{"model", "rows", DType::kBF16, {64, 4096}},
                                            {"model", "small", DType::kF32, {3}},
                                            {"optimizer", "flat", DType::kF32, {100'001}}};
  comm::run_simulated(4, [&](comm::Communicator& communicator) {
    RankState state(tensors, Cut::kRows, communicator.rank(), 4);
    state.fill(1);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    const auto sources = state.sources();
    const Report report = saver.save(directory, 1, sources, {});
    if (communicator.rank() != 0) return;
    for (const Phase& phase : report.phases) bytes += phase.name == "exchange" ? phase.bytes : 0;
  });
  return bytes;
}

TEST(RoundTrip, InMemoryMostBytesBypassTheWindowsAndTheFilesAreTheSame) {
  const TempDir root;
  if (!os::file_system_of(root.path()).lives_in_memory()) GTEST_SKIP() << "no memory file system at " << root.path();
  Options options = small_options();
  options.files.max_bytes = 400'000;
  const std::uint64_t bypass = exchanged_bytes(root / "checkpoint-1", options);
  options.engine.aggregators_per_node = 2;  // then only aggregators write
  const std::uint64_t through_windows = exchanged_bytes(root / "checkpoint-2", options);
  EXPECT_EQ(through_windows, 64 * 4096 * 2 + 12 + 400'004U);
  EXPECT_LT(bypass, through_windows / 10);
  EXPECT_EQ(data_files(root / "checkpoint-1"), data_files(root / "checkpoint-2"));
}

TEST(RoundTrip, UnchangedStateReusesItsPlan) {
  const TempDir root;
  const auto held = lease_of(root.path(), small_options());
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    checkpoint::RootLife life{communicator.rank() == 0 ? held.get() : nullptr, {}, 0};
    io::WindowStore store;
    checkpoint::Saver saver(communicator, small_options(), store);
    RankState state(small_state(), Cut::kMixed, communicator.rank(), 3);
    for (int version = 1; version <= 3; ++version) {
      state.fill(version);
      const auto step = static_cast<std::uint64_t>(version);
      const auto sources = state.sources();
      const Report report = saver.save(root::checkpoint_directory(root.path(), step), step, sources, {}, &life);
      EXPECT_EQ(report.plan_reused, version > 1);
      EXPECT_EQ(report.tensors, small_state().size());
    }
    RankState other(small_state(), Cut::kRows, communicator.rank(), 3);
    other.fill(4);
    const auto sources = other.sources();
    EXPECT_FALSE(saver.save(root::checkpoint_directory(root.path(), 4), 4, sources, {}, &life).plan_reused);
  });
  for (int version = 1; version <= 4; ++version) {
    expect_loads(root / ("checkpoint-" + std::to_string(version)), version, Cut::kColumns, 2);
  }
  EXPECT_EQ(read_file(root / root::kLatestFile), "4\n");
}

/// Saves the small state and a tensor that comes after the blobs' section.
class BlobSaver {
 public:
  BlobSaver(comm::Communicator& communicator, const Options& options)
      : saver_(communicator, options, store_),
        state_(tensors(), Cut::kMixed, communicator.rank(), communicator.size()) {
    state_.fill(1);
  }
  static std::vector<StateTensor> tensors() {
    std::vector<StateTensor> all = small_state();
    all.push_back({"zeta", "behind", DType::kF32, {10, 3}});
    return all;
  }
  std::vector<Source> sources() { return state_.sources(); }
  Report save(const std::filesystem::path& directory, std::span<const Source> sources,
              std::span<const std::byte> blob) {
    Extras extras;
    extras.rank_blob.assign(blob.begin(), blob.end());
    return saver_.save(directory, 1, sources, extras);
  }

 private:
  io::WindowStore store_;
  checkpoint::Saver saver_;
  RankState state_;
};

std::vector<std::byte> some_blob(std::uint64_t bytes, int salt) {
  std::vector<std::byte> blob(bytes);
  for (std::size_t i = 0; i < bytes; ++i) blob[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(salt));
  return blob;
}

TEST(RankBlobs, AreTheFilesThatTensorsWouldBe) {
  const TempDir root;
  Options options = small_options();
  options.files.max_bytes = 60'000;  // on 5 ranks, several files of blobs and an index
  for (const int ranks : {1, 2, 5}) {
    const auto save = [&](comm::Communicator& communicator) {
      const int rank = communicator.rank();
      const auto blob = some_blob(rank == 1 ? 0 : 30'000 + 1000 * static_cast<std::uint64_t>(rank), rank);
      BlobSaver saver(communicator, options);
      std::vector<Source> sources = saver.sources();
      saver.save(root / fmt::format("blobs-{}", ranks), sources, blob);
      Source source;
      source.section = format::kRankSection;
      source.name = planning::rank_blob_name(rank);
      source.dtype = DType::kU8;
      source.shape = {blob.size()};
      source.boxes = {{{0}, {blob.size()}}};
      source.data = blob.data();
      sources.push_back(source);
      saver.save(root / fmt::format("tensors-{}", ranks), sources, {});
    };
    comm::run_simulated(ranks, save, 2);
    const auto blobs = data_files(root / fmt::format("blobs-{}", ranks));
    EXPECT_EQ(blobs, data_files(root / fmt::format("tensors-{}", ranks))) << ranks;
    const auto manifest_of = [&](const std::string& name) {
      return format::parse_manifest(read_file(root / name / format::kManifestFile), name);
    };
    format::Manifest manifest = manifest_of(fmt::format("blobs-{}", ranks));
    EXPECT_EQ(std::exchange(manifest.rank_blobs, 0), static_cast<std::uint64_t>(ranks));
    EXPECT_EQ(format::encode_manifest(manifest),
              format::encode_manifest(manifest_of(fmt::format("tensors-{}", ranks))));
    EXPECT_EQ(blobs.contains("rank_state.safetensors.index.json"), ranks == 5);
  }
}

TEST(RankBlobs, OfAnotherSizeInEverySaveKeepThePlan) {
  const TempDir root;
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    BlobSaver saver(communicator, small_options());
    const std::vector<Source> sources = saver.sources();
    const std::uint64_t tensors = BlobSaver::tensors().size();
    int saves = 0;
    for (const std::uint64_t bytes : {10, 200'000, 0, 33, 33}) {
      const auto blob = some_blob(communicator.rank() == 1 ? bytes : bytes / 2, saves);
      const Report report = saver.save(root / std::to_string(saves), sources, blob);
      EXPECT_EQ(report.plan_reused, saves > 0) << saves;
      EXPECT_EQ(report.tensors, bytes == 0 ? tensors : tensors + 3);
      const auto opened = opening::open_here(root / std::to_string(saves));
      EXPECT_EQ(opened.stored.tensors.size(), report.tensors);
      EXPECT_EQ(opened.stored.files.size(), report.files);
      ++saves;
    }
  });
  for (int saves = 0; saves < 5; ++saves) expect_loads(root / std::to_string(saves), 1, Cut::kColumns, 2);
}

TEST(RankBlobs, TheirSectionIsNoTensors) {
  const TempDir root;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    BlobSaver saver(communicator, small_options());
    std::vector<Source> sources = saver.sources();
    sources.back().section = format::kRankSection;
    const auto blob = some_blob(communicator.rank() == 0 ? 1 : 0, 0);
    expect_error(ErrorKind::kUsage, [&] { saver.save(root / "out", sources, blob); }, {"rank_state", "rank_blob"});
  });
  EXPECT_TRUE(std::filesystem::is_empty(root.path()));
}

TEST(RoundTrip, APlanIsNotUsedForAnotherState) {
  const TempDir root;
  const std::vector<StateTensor> base = {{"model", "a", DType::kF32, {8, 4}}, {"optimizer", "b", DType::kF32, {6, 4}}};
  struct Other {
    const char* what;
    StateTensor tensor;  ///< replaces the first tensor
    Cut cut = Cut::kRows;
  };
  const std::vector<Other> others = {{"section", {"master_weights", "a", DType::kF32, {8, 4}}},
                                     {"name", {"model", "c", DType::kF32, {8, 4}}},
                                     {"dtype", {"model", "a", DType::kI32, {8, 4}}},
                                     {"shape", {"model", "a", DType::kF32, {8, 2, 2}}},
                                     {"boxes", {"model", "a", DType::kF32, {8, 4}}, Cut::kColumns}};
  Options options = small_options();
  options.overwrite = true;
  const auto held = lease_of(root.path(), options);
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    checkpoint::RootLife life{communicator.rank() == 0 ? held.get() : nullptr, {}, 0};
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    std::uint64_t step = 0;
    const auto save = [&](const std::vector<StateTensor>& tensors, Cut cut) {
      RankState state(tensors, cut, communicator.rank(), 2);
      state.fill(1);
      const auto sources = state.sources();
      ++step;
      return saver.save(root::checkpoint_directory(root.path(), step), step, sources, {}, &life).plan_reused;
    };
    save(base, Cut::kRows);
    for (const Other& other : others) {
      EXPECT_EQ(save(base, Cut::kRows), &other == others.data()) << "the plan of the state before " << other.what;
      EXPECT_FALSE(save({other.tensor, base[1]}, other.cut)) << other.what;
    }
  });
  for (std::size_t i = 0; i < others.size(); ++i) {
    SCOPED_TRACE(others[i].what);
    const auto opened = opening::open_here(root::checkpoint_directory(root.path(), 3 + 2 * i));
    const StateTensor& wanted = others[i].tensor;
    ASSERT_EQ(opened.stored.tensors.size(), 2U);
    const auto number = opened.stored.tensors.catalog().find(wanted.section, wanted.name);
    ASSERT_TRUE(number);
    const format::StoredTensor found = opened.stored.tensors[*number];
    EXPECT_EQ(found.dtype, wanted.dtype);
    EXPECT_EQ(found.shape, wanted.shape);
  }
}

TEST(RoundTrip, LoadsWithTheSmallestBudget) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 5);
  expect_loads(root / "checkpoint-1", 1, Cut::kColumns, 3, 28 << 10);
  EXPECT_THROW(expect_loads(root / "checkpoint-1", 1, Cut::kColumns, 3, 8 << 10), Error);
}

/// Saves with one rank's shards changed by `spoil`; returns the message, which must be the same on all ranks.
template <class Spoil>
std::string message_when(const std::filesystem::path& root, Spoil spoil) {
  std::map<int, std::string> messages;
  std::mutex mutex;
  comm::run_simulated(4, [&](comm::Communicator& communicator) {
    RankState state(small_state(), Cut::kRows, communicator.rank(), 4);
    state.fill(1);
    auto sources = state.sources();
    if (communicator.rank() == 2) spoil(sources);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, small_options(), store);
    try {
      saver.save(root / "checkpoint-1", 1, sources, {});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages[communicator.rank()] = error.what();
    }
  });
  EXPECT_EQ(messages.size(), 4U);
  for (const auto& [rank, message] : messages) EXPECT_EQ(message, messages[0]);
  EXPECT_FALSE(std::filesystem::exists(root / "checkpoint-1"));
  EXPECT_EQ(names_beginning_with(root, "checkpoint-"), std::vector<std::string>{});
  return messages[0];
}

TEST(RoundTrip, ContradictionsAreErrorsOnAllRanks) {
  const TempDir root;
  const auto expect = [&](auto spoil, const char* what) {
    const std::string message = message_when(root.path(), spoil);
    EXPECT_NE(message.find("model.embed_tokens.weight"), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  expect([](std::vector<Source>& s) { s[0].boxes.clear(); }, "106:159");
  expect([](std::vector<Source>& s) { s[0].dtype = DType::kF16; }, "F16");
  expect([](std::vector<Source>& s) { s[0].shape = {212, 40}; }, "212");
  expect([](std::vector<Source>& s) { s[0].boxes[0].offset[0] -= 1; }, "rank 1");
  expect([](std::vector<Source>& s) { s[0].data = nullptr; }, "null");
  expect([](std::vector<Source>& s) { s[0].boxes[0].shape[1] = 41; }, "does not fit");
  expect([](std::vector<Source>& s) { s[0].section = "../up"; }, "section");
  expect([](std::vector<Source>& s) { s[0].memory = Memory::kDevice; }, "a device's");
}

}  // namespace
}  // namespace cairn::test
