// Files of frozen tensors that a save takes from an earlier checkpoint: what is written, what each checkpoint is worth
// without the other, and failures at every step.
#include "checkpoint/reuse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <mutex>

#include "checkpoint/part.hpp"
#include "checkpoint/verify.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kFrozenVersion = 1000;

/// 720,000 bytes, which training does not change.
std::vector<StateTensor> frozen_tensors() {
  std::vector<StateTensor> tensors;
  for (int layer = 0; layer < 11; ++layer)
    tensors.push_back({"model", "vision." + std::to_string(layer) + ".weight", DType::kBF16, {300, 100}});
  tensors.push_back({"model", "vision.table", DType::kF32, {150, 100}});
  return tensors;
}
/// 66,000 bytes.
std::vector<StateTensor> trained_tensors() {
  return {{"model", "head.weight", DType::kBF16, {110, 100}},
          {"optimizer", "head.weight/moment1_0", DType::kF32, {110, 100}}};
}

struct Ways {
  Cut cut = Cut::kRows;
  int ranks = 2;
  int frozen = kFrozenVersion;  ///< version of the frozen tensors
};

class ReusedFiles : public testing::Test {
 protected:
  [[nodiscard]] static Options options(Reuse reuse = Reuse::kHardLink) {
    Options options = small_options();
    options.files.max_bytes = 200'000;
    options.frozen = {{{}, {"vision.*"}}};
    options.reuse = reuse;
    return options;
  }

  /// Saves the step, whose number is the version of the trained tensors. Returns rank 0's report.
  Report save(std::uint64_t step, const Options& options, const Ways& ways = {}) {
    const auto lease = lease_of(root_.path(), options);
    std::mutex mutex;
    Report of_rank_0;
    comm::run_simulated(ways.ranks, [&](comm::Communicator& communicator) {
      os::set_fault_rank(communicator.rank());
      RankState frozen(frozen_tensors(), ways.cut, communicator.rank(), ways.ranks);
      RankState trained(trained_tensors(), ways.cut, communicator.rank(), ways.ranks);
      frozen.fill(ways.frozen);
      trained.fill(static_cast<int>(step));
      auto sources = frozen.sources();
      for (Source& source : trained.sources()) sources.push_back(source);
      io::WindowStore store;
      checkpoint::Saver saver(communicator, options, store);
      checkpoint::RootLife life{communicator.rank() == 0 ? lease.get() : nullptr, {}, 0};
      const Report report = saver.save(directory(step), step, sources, {}, &life);
      const std::lock_guard lock(mutex);
      if (communicator.rank() == 0) of_rank_0 = report;
    });
    return of_rank_0;
  }

  /// Loads the step on three ranks, compares all bytes, and verifies all blocks.
  void expect_whole(std::uint64_t step, int frozen_version = kFrozenVersion) const {
    comm::run_simulated(3, [&](comm::Communicator& communicator) {
      RankState frozen(frozen_tensors(), Cut::kColumns, communicator.rank(), 3);
      RankState trained(trained_tensors(), Cut::kColumns, communicator.rank(), 3);
      const auto opened = opening::open_checkpoint(communicator, directory(step));
      std::vector<plan::MemoryBox> wanted;
      for (RankState* const state : {&frozen, &trained}) {
        for (const Target& target : state->targets()) {
          const auto number = opened.stored.tensors.catalog().find(target.section, target.name).value();
          planning::add_boxes(target, number, wanted);
        }
      }
      checkpoint::Loader loader(communicator, opened, {"posix", 16 << 20, {}});
      loader.load(wanted);
      EXPECT_EQ(frozen.matching_bytes(frozen_version), frozen.bytes());
      EXPECT_EQ(trained.matching_bytes(static_cast<int>(step)), trained.bytes());
      const checkpoint::VerifyResult verified = checkpoint::verify(communicator, directory(step));
      EXPECT_THAT(verified.faults, IsEmpty());
      EXPECT_GT(verified.blocks, 0U);
    });
  }

  [[nodiscard]] fs::path directory(std::uint64_t step) const { return root::checkpoint_directory(root_.path(), step); }
  [[nodiscard]] format::Manifest manifest(std::uint64_t step) const {
    return format::parse_manifest(read_file(directory(step) / "cairn.json"), "cairn.json");
  }

  struct Bytes {
    std::uint64_t all = 0;
    std::uint64_t shared = 0;  ///< of files with several names
  };
  [[nodiscard]] Bytes bytes_of(std::uint64_t step) const {
    Bytes bytes;
    for (const auto& entry : fs::directory_iterator(directory(step))) {
      bytes.all += entry.file_size();
      if (entry.hard_link_count() > 1) bytes.shared += entry.file_size();
    }
    return bytes;
  }

  const TempDir root_;
};

TEST_F(ReusedFiles, AreLinked) {
  for (const std::uint64_t block_bytes : {4096U, 1000U, 1U << 20}) {
    SCOPED_TRACE(block_bytes);
    fs::remove_all(root_.path());
    fs::create_directories(root_.path());
    Options options = this->options();
    options.files.block_bytes = block_bytes;
    options.limits.memory_budget_bytes = 16 * std::max<std::uint64_t>(block_bytes, 4096);
    options.read_back = ReadBack::kAll;
    const Report first = save(1, options);
    EXPECT_EQ(first.reused_bytes, 0U);
    for (const format::ManifestFile& file : manifest(1).data_files) {
      const bool is_frozen = file.section == "model" && file.name != "model-00005-of-00005.safetensors";
      EXPECT_EQ(file.blocks_sha256.size(), is_frozen ? 64U : 0U) << file.name;
    }
    const Report second = save(2, options, {Cut::kFlat, 3});
    EXPECT_EQ(second.reused_from, 1U);
    EXPECT_EQ(second.reused_files, 4U);
    EXPECT_THAT(second.warnings, Not(Contains(HasSubstr("frozen"))));  // reads back from memory, with a warning
    const Bytes bytes = bytes_of(2);
    EXPECT_EQ(bytes.shared, second.reused_bytes);
    EXPECT_LE(bytes.all - bytes.shared, bytes.all * 12 / 100) << bytes.all;
    for (const auto& entry : fs::directory_iterator(directory(2))) {
      if (entry.hard_link_count() == 1) continue;
      EXPECT_EQ(entry.status().permissions() & fs::perms(0222), fs::perms::none) << entry.path();
    }
    expect_whole(1);
    expect_whole(2);
    const auto whole = data_files(directory(2));
    fs::remove_all(directory(1));
    expect_whole(2);
    EXPECT_EQ(bytes_of(2).shared, 0U);
    // Without any earlier checkpoint the same bytes are written.
    fs::rename(directory(2), root_ / "aside");
    fs::remove(root_ / "latest_checkpointed_iteration.txt");
    save(2, options, {Cut::kMixed, 2});
    EXPECT_EQ(data_files(directory(2)), whole);
  }
}

TEST_F(ReusedFiles, AreWrittenWhenTheyChange) {
  save(1, options());
  const Report report = save(2, options(), {.frozen = kFrozenVersion + 1});
  EXPECT_EQ(report.reused_bytes, 0U);
  EXPECT_FALSE(report.reused_from);
  ASSERT_EQ(report.warnings.size(), 1U);
  expect_one_line(report.warnings.front(),
                  {"Options::frozen", "changed since step 1", "model-00001-of-00005.safetensors"});
  expect_whole(1);
  expect_whole(2, kFrozenVersion + 1);
  Options of_step = options();
  of_step.reuse_step = 1;
  EXPECT_EQ(save(3, of_step).reused_from, 1U);
  expect_whole(3);
  EXPECT_EQ(save(4, options()).reused_from, 3U);
  of_step.reuse_step = 7;
  expect_error(ErrorKind::kNotFound, [&] { save(5, of_step); }, {"no complete step 7"});
}

TEST_F(ReusedFiles, AreWrittenWhereNothingCanBeShared) {
  save(1, options(Reuse::kReflink));
  const Report report = save(2, options(Reuse::kReflink));
  if (report.reused_bytes == 0) {
    ASSERT_EQ(report.warnings.size(), 1U);
    expect_one_line(report.warnings.front(), {"4 files of frozen tensors were written again", "Reuse::kHardLink"});
  }
  EXPECT_EQ(bytes_of(2).shared, 0U);
  expect_whole(2);
  {
    const Faults faults("clone:errno=ENOTSUP;link:errno=1");
    EXPECT_THAT(save(3, options()).warnings, ElementsAre(HasSubstr("neither shares content between files nor links")));
  }
  {
    const Faults faults("clone:errno=EIO");
    EXPECT_THAT(save(4, options()).warnings, ElementsAre(HasSubstr("clone to")));
  }
  {
    const Faults faults("clone:errno=ENOTSUP;link:errno=EIO:times=1");
    const Report one = save(5, options());
    EXPECT_THAT(one.warnings, ElementsAre(HasSubstr("1 file of frozen tensors was written again: link to")));
    EXPECT_EQ(one.reused_files, 3U);
  }
  for (const std::uint64_t step : {1, 2, 3, 4, 5}) expect_whole(step);
}

TEST_F(ReusedFiles, OfParts) {
  Options options = this->options();
  options.save_only = {{{"model"}, {}}};
  save(1, this->options());
  EXPECT_FALSE(save(2, options).reused_from);  // a whole state is another kind
  EXPECT_EQ(save(3, options).reused_from, 2U);
  EXPECT_EQ(save(4, this->options()).reused_from, 1U);
}

/// Failures of a save. After each, the checkpoint before it is what it was, and the next save works.
TEST_F(ReusedFiles, LoseNothingToFailures) {
  save(1, options());
  const auto before = data_files(directory(1));
  for (const char* const failure :
       {"reuse.find", "reuse.take", "reuse.taken", "reuse.taken:after=2", "reuse.take:rank=1", "read:path=model-",
        "write:path=model-", "write:after=2", "fsync:after=1", "open:path=.partial/model-00005", "commit.carry",
        "commit.blocks", "commit.manifest", "commit.sync", "commit.rename", "memory.checksums"}) {
    for (const bool is_cut_off : {false, true}) {
      SCOPED_TRACE(std::string(failure) + (is_cut_off ? " cut off" : ""));
      bool has_failed = false;
      {
        const Faults faults(std::string(failure) + (is_cut_off ? ";unlink:times=9999" : ""));
        try {
          save(2, options());
        } catch (const Error&) {
          has_failed = true;
        }
      }
      EXPECT_EQ(fs::exists(directory(2)), !has_failed);
      EXPECT_EQ(data_files(directory(1)), before);
      EXPECT_EQ(save(3, options()).reused_files, 4U);
      expect_whole(3);
      expect_whole(1);
      fs::remove_all(directory(2));
      fs::remove_all(directory(3));
      write_file(root_ / "latest_checkpointed_iteration.txt", "1\n");
    }
  }
}

TEST_F(ReusedFiles, AreRefusedWithoutSense) {
  Options without = options();
  without.frozen.clear();
  expect_error(ErrorKind::kUsage, [&] { save(1, without); }, {"Options::frozen selects none"});
  Options idle = options(Reuse::kNever);
  idle.reuse_step = 1;
  expect_error(ErrorKind::kUsage, [&] { save(1, idle); }, {"no effect without Options::reuse"});
}

}  // namespace
}  // namespace cairn::test
