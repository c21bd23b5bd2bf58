// Services for a host program, apart from saving and loading: error details, log lines, progress, releasing memory, and
// file permissions for its group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "cairn/staging.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "hdf5/library.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

RankState filled_state(const World& world, Cut cut = Cut::kRows) {
  RankState state(small_state(), cut, world.rank, world.ranks);
  state.fill(1);
  return state;
}

/// Collective. The details of the Error that `call` must throw, the same on all ranks.
template <class Call>
ErrorDetails details_of(ErrorKind kind, Call call) {
  ErrorDetails details;
  expect_error(kind,
               [&] {
                 try {
                   call();
                 } catch (const Error& error) {
                   details = error.details();
                   throw;
                 }
               },
               {});
  expect_same_everywhere(std::to_string(details.system_error) + "|" + details.path + "|" +
                         std::to_string(details.rank));
  return details;
}

class OnEngine : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Engines, OnEngine, testing::Values("direct", "mpiio", "posix"));

TEST_P(OnEngine, AnErrorHasErrnoPathAndRankOnAllRanks) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state(GetParam()));
  RankState state = filled_state(world);
  for (const int rank : {0, world.ranks - 1}) {
    ErrorDetails details;
    {
      const Faults faults("write:errno=ENOSPC:path=.safetensors:rank=" + std::to_string(rank));
      details = details_of(ErrorKind::kIo, [&] { checkpointer.save(1, state.sources()); });
    }
    EXPECT_EQ(details.system_error, ENOSPC);
    EXPECT_EQ(details.rank, rank);
    EXPECT_THAT(details.path, testing::StartsWith((root / "checkpoint-1.").native()));
    EXPECT_THAT(details.path, testing::EndsWith(".safetensors"));
  }
  checkpointer.save(1, state.sources());
}

TEST(Host, ErrorsOfCommitsAndMissingCheckpointsNameTheirPath) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state());
  RankState state = filled_state(world);
  {
    const Faults faults("rename:errno=EIO:rank=0");
    const ErrorDetails details = details_of(ErrorKind::kIo, [&] { checkpointer.save(3, state.sources()); });
    EXPECT_EQ(details.system_error, EIO);
    EXPECT_EQ(details.rank, 0);
    EXPECT_EQ(details.path, (root / "checkpoint-3").native());
  }
  checkpointer.save(3, state.sources());
  const ErrorDetails exists = details_of(ErrorKind::kUsage, [&] { checkpointer.save(3, state.sources()); });
  EXPECT_EQ(exists.path, (root / "checkpoint-3").native());
  const ErrorDetails missing = details_of(ErrorKind::kNotFound, [&] { checkpointer.load(7, state.targets()); });
  EXPECT_EQ(missing.path, (root / "checkpoint-7").native());
  EXPECT_EQ(missing.rank, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world.rank == 0) fs::resize_file(root / "checkpoint-3" / "cairn.json", 10);
  MPI_Barrier(MPI_COMM_WORLD);
  const ErrorDetails broken = details_of(ErrorKind::kFormat, [&] { checkpointer.load(3, state.targets()); });
  EXPECT_EQ(broken.path, (root / "checkpoint-3" / "cairn.json").native());
  EXPECT_EQ(broken.system_error, 0);
  if (world.ranks == 1) return;
  const ErrorDetails differs =
      details_of(ErrorKind::kUsage, [&] { checkpointer.load(world.rank == 0 ? 3 : 4, state.targets()); });
  EXPECT_EQ(differs.rank, -1);
  EXPECT_EQ(differs.path, "");
}

/// Collects the reports that a progress callback gets, and checks the guarantees of the interface.
struct Heard {
  struct Row {
    std::string phase;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    std::optional<std::uint64_t> step;
  };
  std::vector<Row> rows;
  std::thread::id thread;

  void operator()(const Progress& progress) {
    rows.push_back({std::string(progress.phase), progress.bytes_done, progress.bytes_total, progress.step});
    thread = std::this_thread::get_id();
  }
  /// The phases in order of arrival.
  [[nodiscard]] std::vector<std::string> phases() const {
    std::vector<std::string> names;
    for (const Row& row : rows) {
      if (names.empty() || names.back() != row.phase) names.push_back(row.phase);
    }
    return names;
  }
  void check(std::uint64_t step, std::uint64_t total) const {
    EXPECT_EQ(thread, std::this_thread::get_id());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].step, step);
      EXPECT_LE(rows[i].done, rows[i].total);
      const bool is_last = i + 1 == rows.size() || rows[i + 1].phase != rows[i].phase;
      if (is_last) {
        EXPECT_EQ(rows[i].done, rows[i].total) << rows[i].phase;
      } else {
        EXPECT_LE(rows[i].done, rows[i + 1].done);
      }
      const bool is_of_all_ranks = rows[i].phase == "writing" || rows[i].phase == "reading";
      EXPECT_GE(rows[i].total, is_of_all_ranks ? total : 0);
    }
  }
};

TEST(Host, ProgressIsHeardWhereItIsAskedFor) {
  const World world;
  const SharedTempDir root;
  const bool listens = world.rank == world.ranks - 1;  // on one rank only: callbacks are not compared between ranks
  Heard heard;
  Options options = options_for_small_state();
  options.read_back = ReadBack::kAll;
  if (listens) options.progress = [&](const Progress& progress) { heard(progress); };
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state = filled_state(world);
  const double start = MPI_Wtime();
  const Report saved = checkpointer.save(5, state.sources());
  if (listens) {
    EXPECT_THAT(heard.phases(), testing::ElementsAre("writing", "fsync", "reading back"));
    heard.check(5, saved.bytes);
    const auto tenths = static_cast<std::size_t>((MPI_Wtime() - start) * 10);
    EXPECT_LE(heard.rows.size(), 2 * 3 + tenths + 1) << "at most ten times a second";
  } else {
    EXPECT_TRUE(heard.rows.empty());
  }
  heard.rows.clear();
  RankState loaded(small_state(), Cut::kColumns, world.rank, world.ranks);
  checkpointer.load(5, loaded.targets());
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  if (!listens) return;
  EXPECT_THAT(heard.phases(), testing::ElementsAre("reading"));
  heard.check(5, saved.bytes);
}

TEST(Host, ProgressThatThrowsIsLeftOutAndSaidOnce) {
  const World world;
  const SharedTempDir root;
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kWarning) << line;
    lines.emplace_back(line);
  });
  int calls = 0;
  Options options = options_for_small_state();
  options.progress = [&](const Progress&) {
    ++calls;
    throw std::runtime_error("no window to draw in");
  };
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state = filled_state(world);
  testing::internal::CaptureStderr();
  checkpointer.save(1, state.sources());
  const std::string printed = testing::internal::GetCapturedStderr();
  set_log_sink({});
  EXPECT_EQ(printed, "") << "all of it goes to the sink";
  EXPECT_EQ(calls, 1);
  if (world.rank == 0) {
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_THAT(lines[0], testing::HasSubstr("the progress callback threw"));
    EXPECT_THAT(lines[0], testing::HasSubstr("no window to draw in"));
  } else {
    EXPECT_TRUE(lines.empty()) << "warnings are rank 0's";
  }
  RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
  testing::internal::CaptureStderr();
  checkpointer.load(1, loaded.targets());
  EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), world.rank != 0) << "without a sink it is standard error";
  EXPECT_EQ(calls, 2) << "each call asks again";
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
}

/// Bytes of windows that this process has mapped: its own windows, and those of other ranks on its node.
std::uint64_t mapped_windows() {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:cairn") == std::string::npos) continue;
    std::istringstream range(line);
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char dash = 0;
    range >> std::hex >> begin >> dash >> end;
    bytes += end - begin;
  }
  return bytes;
}

/// tiny_state() has a few kilobytes; large_state() has a few megabytes, and so larger windows.
std::vector<StateTensor> tiny_state() { return {{"model", "tiny", DType::kF32, {64, 32}}}; }
std::vector<StateTensor> large_state() { return {{"model", "large", DType::kF32, {1024, 1024}}}; }

Options roomy_options(const char* engine) {
  Options options = options_for_small_state(engine);
  options.limits.memory_budget_bytes = 8 << 20;  // the state limits the windows, not the budget
  return options;
}

TEST_P(OnEngine, MemoryIsGivenBackAndTakenAgain) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), roomy_options(GetParam()));
  RankState state = filled_state(world);
  EXPECT_EQ(mapped_windows(), 0U);
  checkpointer.release_memory();  // nothing is kept yet
  EXPECT_FALSE(checkpointer.save(1, state.sources()).plan_reused);
  EXPECT_GT(mapped_windows(), 0U);
  EXPECT_TRUE(checkpointer.save(2, state.sources()).plan_reused);
  checkpointer.release_memory();
  EXPECT_EQ(mapped_windows(), 0U);
  EXPECT_FALSE(checkpointer.save(3, state.sources()).plan_reused) << "the plan was given back too";
  EXPECT_TRUE(checkpointer.save(4, state.sources()).plan_reused);
  checkpointer.release_memory();
  RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
  checkpointer.load(4, loaded.targets());
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  checkpointer.release_memory();
  checkpointer.release_memory();
  EXPECT_EQ(mapped_windows(), 0U);
}

TEST_P(OnEngine, ALargerLoadGivesTheWindowsOfTheSaveBackAndItsPlanStays) {
  const World world;
  const SharedTempDir root;
  RankState large(large_state(), Cut::kColumns, world.rank, world.ranks);
  large.fill(1);
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), roomy_options(GetParam()));
    checkpointer.save(1, large.sources());
  }
  std::uint64_t of_load_alone = 0;
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), roomy_options(GetParam()));
    checkpointer.load(1, large.targets());
    of_load_alone = mapped_windows();
  }
  EXPECT_EQ(mapped_windows(), 0U);
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), roomy_options(GetParam()));
  RankState tiny(tiny_state(), Cut::kRows, world.rank, world.ranks);
  tiny.fill(1);
  checkpointer.save(2, tiny.sources());
  EXPECT_GT(mapped_windows(), 0U);
  EXPECT_LT(mapped_windows(), of_load_alone);
  large.clear();
  checkpointer.load(1, large.targets());
  EXPECT_EQ(large.matching_bytes(1), large.bytes());
  EXPECT_EQ(mapped_windows(), of_load_alone) << "only the larger windows are left";
  tiny.fill(2);
  EXPECT_TRUE(checkpointer.save(3, tiny.sources()).plan_reused);
  tiny.clear();
  checkpointer.load(3, tiny.targets());
  EXPECT_EQ(tiny.matching_bytes(2), tiny.bytes());
}

TEST_P(OnEngine, LargerWindowsThatAreNotSharedFailOneSave) {
  const World world;
  if (world.ranks == 1) return;  // a single rank shares no windows
  const SharedTempDir root;
  Options options = roomy_options(GetParam());
  options.files.block_bytes = 64 << 10;  // a window of blobs has at least one block; the whole state needs less
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState tiny(tiny_state(), Cut::kRows, world.rank, world.ranks);
  tiny.fill(1);
  checkpointer.save(1, tiny.sources());
  Extras extras;
  extras.rank_blob.assign(1 << 20, static_cast<std::byte>(world.rank + 1));
  {
    const Faults faults("windows.share:errno=EACCES:rank=1:times=1");
    expect_error(ErrorKind::kIo, [&] { checkpointer.save(2, tiny.sources(), extras); },
                 {"the ranks of a node share the memory of larger windows otherwise than before; save again"});
  }
  EXPECT_FALSE(fs::exists(root / "checkpoint-2"));
  EXPECT_FALSE(checkpointer.save(2, tiny.sources(), extras).plan_reused)
      << "by messages, with the windows that are there";
  EXPECT_TRUE(checkpointer.save(3, tiny.sources(), extras).plan_reused);
  for (const std::uint64_t step : {1, 2, 3}) {
    tiny.clear();
    checkpointer.load(step, tiny.targets());
    EXPECT_EQ(tiny.matching_bytes(1), tiny.bytes()) << step;
    EXPECT_EQ(checkpointer.load_extras(step).rank_blob, step == 1 ? std::vector<std::byte>() : extras.rank_blob)
        << step;
  }
}

/// A group that this process may give to files, other than the group that new files get by default.
std::optional<gid_t> another_group() {
  constexpr gid_t kAnyNumber = 4711;
  if (::geteuid() == 0) return kAnyNumber;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  if (::getgroups(static_cast<int>(groups.size()), groups.data()) < 0) return std::nullopt;
  const auto other = std::find_if(groups.begin(), groups.end(), [](gid_t group) { return group != ::getegid(); });
  return other == groups.end() ? std::nullopt : std::optional(*other);
}

/// On rank 0: expects mode and group for the root and everything in it. Returns the number of files.
int check_access(const fs::path& root, unsigned file_mode, unsigned directory_mode, gid_t group) {
  int files = 0;
  std::vector<fs::path> all = {root};
  for (const auto& entry : fs::recursive_directory_iterator(root)) all.push_back(entry.path());
  for (const fs::path& path : all) {
    struct stat status {};
    EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
    EXPECT_EQ(status.st_mode & 07777, S_ISDIR(status.st_mode) ? directory_mode : file_mode) << path;
    EXPECT_EQ(status.st_gid, group) << path;
    files += S_ISREG(status.st_mode) ? 1 : 0;
  }
  return files;
}

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t before_;
};

/// Saves, overwrites the save, converts and stages, all in a new root, and checks all files.
void check_everything_made(const World& world, const fs::path& root, const Options& options, unsigned directory_mode,
                           gid_t group) {
  RankState state = filled_state(world);
  Extras extras;
  extras.carry_texts = {{"trainer_state.json", "{}"}};
  extras.rank_blob.resize(10);
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root, options);
    checkpointer.save(1, state.sources(), extras);
    checkpointer.save(1, state.sources(), extras);
    checkpointer.save(2, state.sources(), extras);
    checkpointer.load(2, state.targets());
  }
  conversion::ConvertOptions conversion;
  conversion.write = options;
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  conversion::convert(*communicator, root / "checkpoint-2", root / "converted", conversion);
  if (hdf5::is_available()) stage(MPI_COMM_WORLD, root / "state.h5", state.sources(), options);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world.rank == 0) {
    const int files = check_access(root, *options.files.mode, directory_mode, group);
    EXPECT_GT(files, 3 * 8) << "data files of three checkpoints, and what is beside them";
    for (const char* name :
         {"checkpoint-1/cairn.json", "checkpoint-2/cairn.blocks", "checkpoint-2/trainer_state.json",
          "latest_checkpointed_iteration.txt", ".cairn", "cairn.log.jsonl", "converted/cairn.json"}) {
      EXPECT_TRUE(fs::exists(root / name)) << name;
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(OnEngine, FilesHaveTheModeWhateverTheUmask) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state(GetParam());
  options.overwrite = true;
  struct Case {
    mode_t mask;
    unsigned mode;
    unsigned directory_mode;
  };
  for (const Case c : {Case{077, 0660, 0770}, Case{0, 0640, 0750}}) {
    const Umask umask(c.mask);
    options.files.mode = c.mode;
    check_everything_made(world, root / "new" / std::to_string(c.mask), options, c.directory_mode, ::getegid());
    struct stat above {};
    EXPECT_EQ(::stat((root / "new").c_str(), &above), 0);
    EXPECT_EQ(above.st_mode & 0777, 0770U) << "made on the way to the first root, and then left alone";
  }
}

TEST_P(OnEngine, FilesAreOfTheGroup) {
  const std::optional<gid_t> group = another_group();
  if (!group) GTEST_SKIP() << "this process is in one group only";
  const World world;
  const SharedTempDir root;
  const Umask umask(077);
  Options options = options_for_small_state(GetParam());
  options.overwrite = true;
  options.files.mode = 0660;
  options.files.group = std::to_string(*group);
  check_everything_made(world, root / "new", options, 0770, *group);
}

TEST(Host, AModeOrAGroupThatCannotBeIsRefusedBeforeAnythingIsMade) {
  const World world;
  const SharedTempDir root;
  RankState state = filled_state(world);
  const auto refuse = [&](const FileOptions& files, const char* part) {
    Options options = options_for_small_state();
    options.files = files;
    expect_error(ErrorKind::kUsage, [&] { const Checkpointer made(MPI_COMM_WORLD, root / "new", options); }, {part});
    conversion::ConvertOptions conversion;
    conversion.write = options;
    const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
    expect_error(ErrorKind::kUsage, [&] { conversion::convert(*communicator, root.path(), root / "out", conversion); },
                 {part});
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_TRUE(fs::is_empty(root.path()));
    MPI_Barrier(MPI_COMM_WORLD);
  };
  FileOptions files;
  files.mode = 04755;
  refuse(files, "has more than permission bits");
  files.mode = 0440;
  refuse(files, "keeps its owner from reading or writing");
  files.mode.reset();
  files.group = "no such group";
  refuse(files, "there is no group 'no such group'");
  if (::geteuid() != 0) {
    files.group = "0";
    refuse(files, "may not give its files to it");
  }
  if (world.ranks == 1) return;
  Options options = options_for_small_state();
  if (world.rank == 0) options.files.mode = 0660;
  expect_error(ErrorKind::kUsage, [&] { const Checkpointer made(MPI_COMM_WORLD, root / "new", options); },
               {"option 'files.mode' differs", "'0660' on rank 0, 'unset' on rank 1"});
}

TEST(Host, AModeThatTheFileSystemRefusesFailsTheSave) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.files.mode = 0600;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state = filled_state(world);
  {
    const Faults faults("chmod:errno=ENOTSUP:path=cairn.blocks:rank=0");
    const ErrorDetails details = details_of(ErrorKind::kIo, [&] { checkpointer.save(1, state.sources()); });
    EXPECT_EQ(details.system_error, ENOTSUP);
    EXPECT_THAT(details.path, testing::EndsWith("/cairn.blocks"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_FALSE(fs::exists(root / "checkpoint-1"));
  checkpointer.save(1, state.sources());
}

}  // namespace
}  // namespace cairn::test
