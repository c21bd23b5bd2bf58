// Storage that writes half of a request and reports all of it, with every engine: a save with read-back fails;
// without it, verify and loads find the missing data. Verify bypasses the page cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/page_cache.hpp"
#include "cairn/checkpoint.hpp"
#include "cairn/staging.hpp"
#include "checkpoint/verify.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "faults.hpp"
#include "hdf5/library.hpp"
#include "os/file.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kRefusal = "storage reported more as written than it holds; the save is refused";

Options options_for(const std::string& engine, ReadBack read_back) {
  Options options = options_for_small_state(engine);
  options.limits.memory_budget_bytes = 1 << 20;
  options.read_back = read_back;
  return options;
}

/// Collective: the message, equal on all ranks, of the Error of `kind` that `call` throws; empty if it does not throw.
std::string common_text(ErrorKind kind, const std::function<void()>& call) {
  std::string text;
  try {
    call();
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(error.kind(), kind) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  expect_same_everywhere(text);
  return text;
}

/// Collective.
checkpoint::VerifyResult verify(const fs::path& directory) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  return checkpoint::verify(*communicator, directory);
}

bool has_partials(const fs::path& root) {
  const auto entries = os::list_directory(root);
  return std::any_of(entries.begin(), entries.end(),
                     [](const os::DirectoryEntry& entry) { return entry.name.find(".partial") != std::string::npos; });
}

class ReadBackOn : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { state_.fill(1); }
  [[nodiscard]] static std::string engine() { return GetParam(); }

  const World world_;
  const SharedTempDir root_;
  RankState state_{small_state(), Cut::kMixed, world_.rank, world_.ranks};
};

TEST_P(ReadBackOn, EveryLieOfStorageIsRefusedAndTheOlderCheckpointStays) {
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options_for(engine(), ReadBack::kAll));
  const Report first = checkpointer.save(1, state_.sources());
  const auto phase = std::find_if(first.phases.begin(), first.phases.end(),
                                  [](const Phase& found) { return found.name == "read back"; });
  ASSERT_NE(phase, first.phases.end());
  EXPECT_GT(phase->bytes, first.bytes);  // includes headers
  // In each save a later write of a rank lies: data, heads and tails of blocks, headers, and on rank 0 the small files.
  int refused = 0;
  for (std::uint64_t after = 0, next = 1; after < 10'000; std::swap(after, next), next += after) {
    const int rank = static_cast<int>(after) % world_.ranks;
    const Faults faults("write:lie:times=1:path=checkpoint-2.:rank=" + std::to_string(rank) +
                        ":after=" + std::to_string(after));
    const std::string text = common_text(ErrorKind::kIntegrity, [&] { checkpointer.save(2, state_.sources()); });
    if (text.empty()) break;
    ++refused;
    EXPECT_THAT(text, HasSubstr(kRefusal));
    EXPECT_THAT(text, HasSubstr("checkpoint-2."));
    EXPECT_EQ(checkpointer.latest(), 1U);
    EXPECT_FALSE(has_partials(root_.path()));
  }
  EXPECT_GE(refused, 3);
  checkpointer.save(3, state_.sources());
  EXPECT_EQ(checkpointer.latest(), 3U);
  RankState loaded(small_state(), Cut::kRows, world_.rank, world_.ranks);
  checkpointer.load(3, loaded.targets());
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
}

TEST_P(ReadBackOn, ARefusalNamesFileBlockAndTensors) {
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options_for(engine(), ReadBack::kSample));
  const std::string text = [&] {
    const Faults faults("write:lie:path=optimizer-");  // all writes, and so also first and last blocks
    return common_text(ErrorKind::kIntegrity, [&] { checkpointer.save(1, state_.sources()); });
  }();
  EXPECT_THAT(text, HasSubstr(kRefusal));
  EXPECT_THAT(text, HasSubstr("/optimizer-"));
  EXPECT_THAT(text, HasSubstr("reads back otherwise: block "));
  EXPECT_EQ(checkpointer.latest(), std::nullopt);
  EXPECT_TRUE(checkpointer.save(1, state_.sources()).bytes != 0);
}

TEST_P(ReadBackOn, SmallFilesAreReadBackToo) {
  Extras extras;
  extras.carry_texts["trainer_state.json"] = std::string(10'000, 't');
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options_for(engine(), ReadBack::kSample));
  for (const char* name : {"trainer_state.json", "model.safetensors.index.json", "cairn.blocks", "cairn.json"}) {
    SCOPED_TRACE(name);
    const Faults faults(std::string("write:lie:times=1:path=/") + name);
    const std::string text =
        common_text(ErrorKind::kIntegrity, [&] { checkpointer.save(1, state_.sources(), extras); });
    EXPECT_THAT(text, HasSubstr(kRefusal));
    EXPECT_THAT(text, HasSubstr(std::string("/") + name + "', which was just written, reads back otherwise: "));
    EXPECT_FALSE(has_partials(root_.path()));
  }
  checkpointer.save(1, state_.sources(), extras);
  EXPECT_EQ(checkpointer.load_extras(1).carried.at("trainer_state.json"), 10'000U);
}

TEST_P(ReadBackOn, WithoutItVerifyAndALoadNameFileAndBlock) {
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options_for(engine(), ReadBack::kOff));
  {
    const Faults faults("write:lie:times=1:path=/model-");
    checkpointer.save(1, state_.sources());
  }
  EXPECT_EQ(checkpointer.latest(), 1U);
  const auto result = verify(root_ / "checkpoint-1");
  ASSERT_FALSE(result.faults.empty());
  for (const checkpoint::Fault& fault : result.faults) {
    EXPECT_THAT(fault.file, HasSubstr("model-"));
    EXPECT_TRUE(fault.has_block);
    EXPECT_FALSE(fault.tensors.empty()) << fault.message;
  }
  const std::string text = common_text(ErrorKind::kIntegrity, [&] { checkpointer.load(1, state_.targets()); });
  EXPECT_THAT(text, HasSubstr("/model-"));
  EXPECT_THAT(text, HasSubstr("block "));
}

INSTANTIATE_TEST_SUITE_P(Engines, ReadBackOn, testing::Values("direct", "posix", "mpiio"));

TEST(ReadBack, ConversionsAndStagingFilesAreReadBack) {
  const World world;
  const SharedTempDir root;
  RankState state(small_state(), Cut::kMixed, world.rank, world.ranks);
  state.fill(1);
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for("auto", ReadBack::kOff));
  checkpointer.save(1, state.sources());
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  conversion::ConvertOptions options;
  options.write = options_for("auto", ReadBack::kAll);
  const auto convert = [&](const char* name) {
    return conversion::convert(*communicator, root / "checkpoint-1", root / name, options).report.phases;
  };
  std::vector<const char*> names = {"converted"};
  if (hdf5::is_available()) names.push_back("staged.h5");
  for (const char* name : names) {
    SCOPED_TRACE(name);
    {
      const Faults faults(std::string("write:lie:after=3:path=/") + name);
      EXPECT_THAT(common_text(ErrorKind::kIntegrity, [&] { convert(name); }), HasSubstr(kRefusal));
    }
    EXPECT_FALSE(fs::exists(root / name));
    const std::vector<Phase> phases = convert(name);
    EXPECT_TRUE(fs::exists(root / name));
    EXPECT_TRUE(std::ranges::any_of(phases, [](const Phase& one) { return one.name == "checksum" && one.bytes != 0; }));
  }
}

/// One large tensor; its header, which is read through the page cache, is negligible.
class VerifyFromDisk : public testing::Test {
 protected:
  VerifyFromDisk() {
    Source source;
    source.name = "w";
    source.dtype = DType::kU8;
    source.shape = {kBytes};
    if (world_.rank == world_.ranks - 1) {
      for (std::size_t i = 0; i < kBytes; ++i) memory_.push_back(static_cast<std::byte>(i * 7 + i / 4096));
      source.boxes = {{{0}, {kBytes}}};
      source.data = memory_.data();
    }
    Options options = options_for("posix", ReadBack::kOff);
    options.files.max_bytes = kBytes;
    options.files.block_bytes = 1 << 20;
    options.limits.memory_budget_bytes = 16 << 20;
    Checkpointer(MPI_COMM_WORLD, root_.path(), options).save(1, {&source, 1});
  }

  [[nodiscard]] bool is_in_memory() const { return os::file_system_of(root_.path()).lives_in_memory(); }

  static constexpr std::uint64_t kBytes = 32'000'001;
  const World world_;
  const SharedTempDir root_;
  const fs::path file_ = root_ / "checkpoint-1/model.safetensors";
  std::vector<std::byte> memory_;
};

TEST_F(VerifyFromDisk, PastThePageCache) {
  const std::vector<fs::path> files = {file_};
  MPI_Barrier(MPI_COMM_WORLD);
  bench::drop_pages(files);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto result = verify(root_ / "checkpoint-1");
  EXPECT_TRUE(result.faults.empty());
  EXPECT_EQ(result.bytes, fs::file_size(file_));
  if (is_in_memory()) {
    EXPECT_GE(result.cached_bytes, result.bytes);
    EXPECT_THAT(result.why_cached, HasSubstr("lives in memory"));
    return;
  }
  EXPECT_EQ(result.cached_bytes, 0U) << result.why_cached;
  EXPECT_LT(bench::cached_share(files), 0.1);
}

TEST_F(VerifyFromDisk, WithoutDirectReadsCachedPagesAreDroppedFirst) {
  std::vector<std::byte> all(fs::file_size(file_));
  os::File(file_, os::OpenMode::kRead).read_at(all, 0);  // into the page cache
  MPI_Barrier(MPI_COMM_WORLD);
  const Faults faults("os.direct:errno=EINVAL");
  const auto result = verify(root_ / "checkpoint-1");
  EXPECT_TRUE(result.faults.empty());
  if (is_in_memory()) {
    EXPECT_GE(result.cached_bytes, result.bytes);
  } else {
    EXPECT_EQ(result.cached_bytes, 0U) << result.why_cached;
  }
}

TEST_F(VerifyFromDisk, WithoutRequestsInFlightFindsTheSame) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_.rank == 0) {
    std::byte byte[1];
    os::File(file_, os::OpenMode::kRead).read_at(byte, kBytes);
    byte[0] ^= std::byte{4};
    os::File(file_, os::OpenMode::kWrite).write_at(byte, kBytes);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (const char* rules : {"", "os.io_uring:errno=EACCES", "os.io_uring:errno=EACCES;os.direct:errno=EINVAL",
                            "read:short=512:times=3", "read:errno=EINTR:times=3;os.io_uring:errno=EACCES"}) {
    SCOPED_TRACE(rules);
    const Faults faults(rules);
    const auto result = verify(root_ / "checkpoint-1");
    ASSERT_EQ(result.faults.size(), 1U);
    EXPECT_EQ(result.faults[0].file, "model.safetensors");
    EXPECT_EQ(result.faults[0].block, kBytes >> 20);
    EXPECT_EQ(result.faults[0].tensors, std::vector<std::string>{"w"});
    EXPECT_EQ(result.bytes, fs::file_size(file_));
  }
}

}  // namespace
}  // namespace cairn::test
