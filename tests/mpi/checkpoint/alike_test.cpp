// Bad arguments and failures on a single rank: all ranks throw the same Error, no rank hangs,
// and the next call works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/staging.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "faults.hpp"
#include "root/lease_folder.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

constexpr double kLimitSeconds = 600;

Options small_options() {
  Options options = options_for_small_state();
  options.waiting.limit_s = kLimitSeconds;
  return options;
}

/// This rank's part of the small state, filled as version 1.
RankState filled_state() {
  const World world;
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  return state;
}

/// Collective. Expects `call` to throw the same Error on all ranks, details included, of `kind` and with `part` in its
/// message, well before any time limit.
void expect_alike(ErrorKind kind, const char* part, const std::function<void()>& call) {
  std::string text = "nothing was thrown";
  const double start = MPI_Wtime();
  try {
    call();
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(error.kind(), kind) << text;
    text += " | errno " + std::to_string(error.system_error()) + ", path '" + error.path() + "', rank " +
            std::to_string(error.rank());
  }
  EXPECT_LT(MPI_Wtime() - start, kLimitSeconds / 2);
  EXPECT_THAT(text, HasSubstr(part));
  expect_same_everywhere(text);
}

/// Calls expect_alike() with a fault on the last rank during the call.
void expect_alike_with(const std::string& place, const char* part, const std::function<void()>& call,
                       ErrorKind kind = ErrorKind::kInternal) {
  SCOPED_TRACE(place);
  const World world;
  const Faults faults(place + ":rank=" + std::to_string(world.ranks - 1) + ":times=1");
  expect_alike(kind, part, call);
}

TEST(Alike, OptionsThatDifferAreNamed) {
  const World world;
  const SharedTempDir root;
  const int last = world.ranks - 1;
  const auto make = [&](const Options& options) { const Checkpointer made(MPI_COMM_WORLD, root.path(), options); };
  Options options = small_options();
  if (world.rank == last) options.files.block_bytes = 8192;
  const std::string ranks = "'4096' on rank 0, '8192' on rank " + std::to_string(last);
  expect_alike(ErrorKind::kUsage, ranks.c_str(), [&] { make(options); });
  expect_alike(ErrorKind::kUsage, "option 'files.block_bytes' differs between the ranks", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.engine.hints["striping_factor"] = "4";
  expect_alike(ErrorKind::kUsage, "option 'engine.hints' differs", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.files.form = "paddlenlp";
  expect_alike(ErrorKind::kUsage, "option 'files.form' differs", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.overwrite = true;
  expect_alike(ErrorKind::kUsage, "option 'overwrite' differs", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.read_back = ReadBack::kAll;
  expect_alike(ErrorKind::kUsage, "option 'read_back' differs", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.checks.replicas = ReplicaCheck::kAll;
  expect_alike(ErrorKind::kUsage, "option 'checks.replicas' differs", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.frozen = {{{"model"}, {}}};
  expect_alike(ErrorKind::kUsage, "option 'frozen' differs", [&] { make(options); });
  options = small_options();
  if (world.rank == last) options.quantisation.codecs["optimizer"] = "q8";
  expect_alike(ErrorKind::kUsage, "option 'quantisation.codecs' differs", [&] { make(options); });
  make(small_options());
}

TEST(Alike, RootsAndStepsThatDifferAreNamed) {
  const World world;
  const SharedTempDir root;
  const bool is_last = world.rank == world.ranks - 1;
  expect_alike(ErrorKind::kUsage, "option 'path' differs",
               [&] { const Checkpointer made(MPI_COMM_WORLD, is_last ? root / "b" : root / "a", small_options()); });
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), small_options());
  RankState state = filled_state();
  expect_alike(ErrorKind::kUsage, "argument 'step' differs between the ranks: '1' on rank 0, '2' on rank",
               [&] { checkpointer.save(is_last ? 2 : 1, state.sources()); });
  checkpointer.save(1, state.sources());
  expect_alike(ErrorKind::kUsage, "argument 'step' differs",
               [&] { checkpointer.load(is_last ? 2 : 1, state.targets()); });
  expect_alike(ErrorKind::kUsage, "argument 'step' differs",
               [&] { static_cast<void>(checkpointer.load_extras(is_last ? 2 : 1)); });
  expect_alike(ErrorKind::kUsage, "argument 'name' differs",
               [&] { checkpointer.load_carried(1, is_last ? "a" : "b", {}); });
  checkpointer.load(1, state.targets());
}

/// Changes the working directory while the object exists.
class CurrentDirectory {
 public:
  explicit CurrentDirectory(const std::filesystem::path& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~CurrentDirectory() { std::filesystem::current_path(before_); }
  CurrentDirectory(const CurrentDirectory&) = delete;
  CurrentDirectory& operator=(const CurrentDirectory&) = delete;

 private:
  std::filesystem::path before_;
};

TEST(Alike, RelativeRootsOfDifferentDirectoriesAreNamed) {
  const World world;
  const SharedTempDir place;
  std::filesystem::create_directory(place / std::to_string(world.rank));
  const CurrentDirectory own(place / std::to_string(world.rank));
  const auto root_of = [&](int rank) { return "'" + (place / std::to_string(rank) / "run").string() + "' on rank "; };
  const auto make = [&] { const Checkpointer made(MPI_COMM_WORLD, "run", small_options()); };
  expect_alike(ErrorKind::kUsage, (root_of(0) + "0").c_str(), make);
  expect_alike(ErrorKind::kUsage, (root_of(1) + "1").c_str(), make);
  EXPECT_FALSE(std::filesystem::exists("run"));
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  expect_alike(ErrorKind::kUsage, "differs between the ranks",
               [&] { stage(MPI_COMM_WORLD, "state.h5", state.sources(), small_options()); });
}

/// The working directory changes during an asynchronous save, and again before the loads.
TEST(Alike, ARelativeRootIsThatOfTheConstruction) {
  const World world;
  const SharedTempDir place;
  if (world.rank == 0) std::filesystem::create_directory(place / "elsewhere");
  RankState state = filled_state();
  Extras extras;
  std::optional<Checkpointer> checkpointer;
  {
    const CurrentDirectory here(place.path());
    if (world.rank == 0) std::ofstream("config.json") << "{}";
    checkpointer.emplace(MPI_COMM_WORLD, "./run", small_options());
    // While rank 0 is paused in the middle of the commit, the other ranks also wait.
    const std::filesystem::path pause = place / "pause";
    const Faults faults("commit.carry:rank=0:times=1:pause=" + pause.string());
    extras.carry_files = {"config.json"};
    SaveTicket ticket = checkpointer->save_async(1, state.sources(), extras);
    const CurrentDirectory elsewhere(place / "elsewhere");
    if (world.rank == 0) std::ofstream(pause) << "";
    EXPECT_EQ(ticket.wait().directory, place / "run" / "checkpoint-1");
    checkpointer->save(2, state.sources());
  }
  EXPECT_EQ(checkpointer->latest(), 2U);
  RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
  checkpointer->load(1, loaded.targets());
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  EXPECT_EQ(checkpointer->load_extras(1).carried.count("config.json"), 1U);
  EXPECT_TRUE(std::filesystem::exists(place / "run" / "checkpoint-2" / "cairn.json"));
  EXPECT_TRUE(std::filesystem::is_empty(place / "elsewhere"));
  expect_same_everywhere("the end");
}

TEST(Alike, AFirstAsynchronousSaveThatFailsLeavesNothingOnAnyRank) {
  const SharedTempDir root;
  RankState state = filled_state();
  const std::vector<Source> sources = state.sources();
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), small_options());
  expect_alike_with(
      "thread.async", "no thread for asynchronous saves",
      [&] { static_cast<void>(checkpointer.save_async(1, sources)); }, ErrorKind::kIo);
  expect_alike_with(
      "thread.async", "no thread for asynchronous saves", [&] { checkpointer.prepare_async(sources); }, ErrorKind::kIo);
  expect_alike_with("memory.populate", "out of memory",
                    [&] { static_cast<void>(checkpointer.save_async(1, sources)); });
  checkpointer.save(1, sources);
  checkpointer.save_async(2, sources).wait();
  EXPECT_EQ(checkpointer.latest(), 2U);
}

int first_core() {
  cpu_set_t mine;
  ::sched_getaffinity(0, sizeof mine, &mine);
  int core = 0;
  while (!CPU_ISSET(core, &mine)) ++core;
  return core;
}

/// A batch system can give the ranks' processes different sets of processors.
TEST(Alike, ProcessorsThatOneRankMayNotUse) {
  const SharedTempDir root;
  RankState state = filled_state();
  const std::vector<Source> sources = state.sources();
  Options options = small_options();
  const std::string core = std::to_string(first_core());
  options.async.cores = core;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  expect_alike_with(
      "thread.affinity:errno=EINVAL", ("this process may not use processors " + core + ": Invalid argument").c_str(),
      [&] { static_cast<void>(checkpointer.save_async(1, sources)); }, ErrorKind::kUsage);
  checkpointer.save_async(1, sources).wait();
  EXPECT_EQ(checkpointer.latest(), 1U);
}

TEST(Alike, NoThreadAndNoMemoryForTheCheckpointer) {
  const SharedTempDir root;
  const auto make = [&] { const Checkpointer made(MPI_COMM_WORLD, root.path(), small_options()); };
  expect_alike_with("thread.watchdog", "duplicate a communicator", make);
  expect_alike_with("memory.communicator", "duplicate a communicator", make);
  make();
}

TEST(Alike, NoMemoryInACall) {
  const SharedTempDir root;
  Options options = small_options();
  options.overwrite = true;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state = filled_state();
  const auto save = [&] { checkpointer.save(1, state.sources()); };
  save();
  expect_alike_with("memory.checksums", "make room for checksums: out of memory", save);
  expect_alike_with("memory.extras", "find the extras: out of memory",
                    [&] { static_cast<void>(checkpointer.load_extras(1)); });
  const auto load = [&] { checkpointer.load(1, state.targets()); };
  expect_alike_with("memory.load", "plan the load: out of memory", load);
  expect_alike_with("memory.collective", "a rank has no memory for a collective's messages", load);
  save();
  load();
  EXPECT_EQ(state.matching_bytes(1), state.bytes());
}

TEST(Alike, NoMemoryInADiffOrAConversion) {
  const World world;
  const SharedTempDir root;
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), small_options());
    RankState state = filled_state();
    checkpointer.save(1, state.sources());
    state.fill(2);
    checkpointer.save(2, state.sources());
  }
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  const auto compare = [&] {
    conversion::diff(*communicator, root / "checkpoint-1", root / "checkpoint-2", conversion::DiffOptions{});
  };
  expect_alike_with("memory.diff", "share the elements: out of memory", compare);
  expect_alike_with("memory.elements", "make room for elements: out of memory", compare);
  expect_alike_with("memory.compare", "compare the elements: out of memory", compare);
  compare();
  conversion::ConvertOptions options;
  options.write = small_options();
  options.quant = "q8";
  expect_alike_with("memory.moments", "make room for moments: out of memory",
                    [&] { conversion::convert(*communicator, root / "checkpoint-1", root / "converted", options); });
}

/// Number of files below the directory that this process has open.
int open_files_in(const std::filesystem::path& directory) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (gone || target.parent_path().filename() == root::kLeaseDirectory) continue;  // a lease stays open longer
    if (target.native().starts_with(directory.native() + "/")) ++found;
  }
  return found;
}

class AlikeOn : public testing::TestWithParam<const char*> {};

TEST_P(AlikeOn, FilesAreClosedAfterALoadThatFails) {
  const World world;
  const SharedTempDir root;
  Options options = small_options();
  options.engine.name = GetParam();
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state = filled_state();
  checkpointer.save(1, state.sources());
  if (world.rank == 0) {
    for (const auto& entry : std::filesystem::directory_iterator(root / "checkpoint-1")) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('\x55');
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  expect_alike(ErrorKind::kIntegrity, "checksum", [&] { checkpointer.load(1, state.targets()); });
  EXPECT_EQ(open_files_in(std::filesystem::canonical(root.path())), 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, AlikeOn, testing::Values("mpiio", "posix", "direct"));

}  // namespace
}  // namespace cairn::test
