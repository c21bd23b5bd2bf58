// Asynchronous saves write the state as it was at the call, whatever later happens to the state,
// the save or the ticket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/mman.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/snapshot.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "moment_state.hpp"
#include "os/file.hpp"
#include "root/run_log.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "soft_limit.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Async : public testing::Test {
 protected:
  Checkpointer make(const Options& options = options_for_small_state("posix")) const {
    return {MPI_COMM_WORLD, root_.path(), options};
  }
  RankState state_of(Cut cut, int version) const {
    RankState state(small_state(), cut, world_.rank, world_.ranks);
    state.fill(version);
    return state;
  }
  /// Collective.
  void expect_content(Checkpointer& checkpointer, std::uint64_t step, int version) const {
    RankState loaded(small_state(), Cut::kColumns, world_.rank, world_.ranks);
    checkpointer.load(step, loaded.targets());
    EXPECT_EQ(loaded.matching_bytes(version), loaded.bytes()) << "step " << step;
  }
  /// Unfinished (.partial) and replaced (.replaced) directories in the root.
  [[nodiscard]] std::vector<std::string> leftovers() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".partial") || name.ends_with(".replaced")) names.push_back(name);
    }
    return names;
  }

  const World world_;
  SharedTempDir root_;
  SharedTempDir outside_;
};

/// Stops the writes of all ranks until release().
class PausedWrites {
 public:
  explicit PausedWrites(const fs::path& directory)
      : gate_(directory / "gate"), faults_("write:path=.partial:pause=" + gate_.string()) {}
  ~PausedWrites() { release(); }
  void release() { std::ofstream(gate_) << "go"; }
  /// Waits until a write has been stopped.
  void reached() const { wait_until_paused(gate_); }

 private:
  fs::path gate_;
  Faults faults_;
};

TEST_F(Async, PrunesInTheBackground) {
  Options options = options_for_small_state("posix");
  options.retention.keep_last = 1;
  options.retention.keep_best = {{"loss"}};
  Checkpointer checkpointer = make(options);
  RankState state = state_of(Cut::kRows, 1);
  for (const std::uint64_t step : {1, 2, 3, 4}) {
    state.fill(static_cast<int>(step));
    Extras extras;
    extras.metrics["loss"] = step == 2 ? 0.5 : 3;
    const bool is_in_background = step != 4;
    const Report report = is_in_background ? checkpointer.save_async(step, state.sources(), extras).wait()
                                           : checkpointer.save(step, state.sources(), extras);
    EXPECT_THAT(report.warnings, testing::IsEmpty());
    const bool goes = world_.rank == 0 && step % 2 == 0;
    ASSERT_EQ(report.pruned.size(), goes ? 1u : 0u) << step;
    EXPECT_EQ(report.freed_bytes != 0, goes);
    if (goes) {
      EXPECT_EQ(report.pruned.front().step, step - 1);
    }
  }
  std::vector<std::uint64_t> steps;
  for (const StepInfo& info : checkpointer.steps()) steps.push_back(info.step);
  EXPECT_THAT(steps, testing::ElementsAre(2, 4));
  EXPECT_EQ(checkpointer.load_extras(2).metrics.at("loss"), 0.5);
  expect_content(checkpointer, 4, 4);
  EXPECT_THAT(leftovers(), testing::IsEmpty());
  std::vector<std::uint64_t> logged;
  for (const format::LogCall& call : root::read_run_log(checkpointer.root()).calls) {
    if (call.what != format::kLogPrune) continue;
    EXPECT_GT(call.bytes, 0u);
    logged.insert(logged.end(), call.pruned.begin(), call.pruned.end());
  }
  EXPECT_THAT(logged, testing::ElementsAre(1, 3));
}

TEST_F(Async, SavesTheStateAsItWasAtTheCall) {
  std::uint64_t step = 0;
  for (const char* engine : {"posix", "direct"}) {
    Checkpointer checkpointer = make(options_for_small_state(engine));
    for (const Cut cut : {Cut::kReplicated, Cut::kRows, Cut::kFlat, Cut::kMixed}) {
      RankState state = state_of(cut, 1);
      for (const int version : {1, 2}) {
        state.fill(version);
        SaveTicket ticket = checkpointer.save_async(++step, state.sources());
        state.fill(7);
        EXPECT_EQ(ticket.step(), step);
        const Report report = ticket.wait();
        EXPECT_TRUE(ticket.test());
        EXPECT_FALSE(ticket.was_skipped());
        EXPECT_TRUE(report.plan_reused || version == 1);
        EXPECT_EQ(report.step, step);
        ASSERT_TRUE(report.stall);
        EXPECT_EQ(report.stall->snapshot_bytes, report.bytes);  // replicas are copied once
        EXPECT_LE(report.stall->copy_seconds + report.stall->plan_seconds, report.stall->seconds + 1e-3);
        EXPECT_LE(report.stall->seconds, report.seconds);
        EXPECT_TRUE(report.warnings.empty());
        EXPECT_EQ(ticket.wait().bytes, report.bytes) << "a second time";
        expect_content(checkpointer, step, version);
      }
    }
  }
}

TEST_F(Async, MoreFilesThanMayBeOpenAreOpenByTurns) {
  for (const char* engine : {"posix", "direct"}) {
    Options options = options_for_small_state(engine);
    options.files.max_bytes = 4096;
    options.overwrite = true;
    Checkpointer checkpointer = make(options);
    RankState state = state_of(Cut::kMixed, 1);
    checkpointer.save_async(1, state.sources()).wait();
    state.fill(2);
    {
      const SoftLimit limit = descriptors_left(32);
      SaveTicket ticket = checkpointer.save_async(2, state.sources());
      EXPECT_GT(ticket.wait().files, 48U);
    }
    expect_content(checkpointer, 2, 2);
  }
}

TEST_F(Async, GathersWhatDoesNotFitBeforeItReturns) {
  for (const std::uint64_t limit : {0, 30'000, 100'000}) {
    Options options = options_for_small_state("posix");
    options.async.max_snapshot_bytes = limit;
    options.overwrite = true;
    Checkpointer checkpointer = make(options);
    RankState state = state_of(Cut::kRows, 1);
    SaveTicket ticket = checkpointer.save_async(1, state.sources());
    state.fill(7);
    const Report report = ticket.wait();
    EXPECT_LE(report.stall->snapshot_bytes, limit * static_cast<std::uint64_t>(world_.ranks));
    EXPECT_LT(report.stall->snapshot_bytes, report.bytes);
    EXPECT_THAT(report.warnings, Not(Contains(HasSubstr("synchronous"))));
    expect_content(checkpointer, 1, 1);
  }
}

/// Long runs are written directly from the snapshot while the copy is still running.
TEST_F(Async, LongRunsAreWrittenOutOfTheSnapshot) {
  Options options = options_for_long_runs("direct");
  options.overwrite = true;
  const bool is_in_memory = os::file_system_of(root_.path()).lives_in_memory();
  const auto tensors = state_of_long_runs(world_.ranks);
  RankState loaded(tensors, Cut::kColumns, world_.rank, world_.ranks);
  for (const bool is_short : {false, true}) {
    if (is_short) options.async.max_snapshot_bytes = 1 << 20;
    for (const Cut cut : {Cut::kRows, Cut::kFlat}) {
      Checkpointer checkpointer = make(options);
      RankState state(tensors, cut, world_.rank, world_.ranks);
      for (const int version : {1, 2}) {
        state.fill(version);
        const auto step = static_cast<std::uint64_t>(version);
        SaveTicket ticket = checkpointer.save_async(step, state.sources());
        state.clear();
        const Report report = ticket.wait();
        EXPECT_EQ(report.plan_reused, version == 2);
        EXPECT_THAT(report.warnings, Not(Contains(HasSubstr("synchronous"))));
        std::uint64_t exchanged = 0;
        for (const Phase& phase : report.phases) exchanged += phase.name == "exchange" ? phase.bytes : 0;
        EXPECT_EQ(exchanged < report.bytes / 2, !is_short || is_in_memory) << exchanged;
        checkpointer.load(step, loaded.targets());
        EXPECT_EQ(loaded.matching_bytes(version), loaded.bytes());
      }
    }
  }
}

TEST_F(Async, OneSaveAtATime) {
  for (const WhenBusy when : {WhenBusy::kWait, WhenBusy::kSkip, WhenBusy::kFail}) {
    const SharedTempDir gate;
    Options options = options_for_small_state("posix");
    options.async.when_busy = when;
    options.overwrite = true;
    Checkpointer checkpointer = make(options);
    RankState state = state_of(Cut::kRows, 1);
    checkpointer.save(1, state.sources());
    SaveTicket first;
    SaveTicket second;
    {
      PausedWrites writes(gate.path());
      const auto start = std::chrono::steady_clock::now();
      first = checkpointer.save_async(2, state.sources());
      // Over ten times the duration of a call on busy ranks: by then the second save has long been waiting.
      const auto long_enough = 10 * (std::chrono::steady_clock::now() - start) + std::chrono::milliseconds(100);
      EXPECT_FALSE(first.test());
      state.fill(2);
      MPI_Barrier(MPI_COMM_WORLD);
      std::thread later;
      if (when == WhenBusy::kWait && world_.rank == 0) {
        later = std::thread([&] {
          std::this_thread::sleep_for(long_enough);
          writes.release();
        });
      }
      if (when == WhenBusy::kFail) {
        expect_error_everywhere(ErrorKind::kState, "still under way",
                                [&] { second = checkpointer.save_async(3, state.sources()); });
      } else {
        second = checkpointer.save_async(3, state.sources());
        EXPECT_EQ(first.test(), when == WhenBusy::kWait);
      }
      if (later.joinable()) later.join();
    }
    EXPECT_EQ(second.was_skipped(), when == WhenBusy::kSkip);
    first.wait();
    const Report report = second.wait();
    if (when == WhenBusy::kWait) {
      EXPECT_GT(report.stall->wait_seconds, 0);
    }
    expect_content(checkpointer, 2, 1);
    EXPECT_EQ(checkpointer.latest(), when == WhenBusy::kWait ? 3U : 2U);
    if (when == WhenBusy::kWait) expect_content(checkpointer, 3, 2);
  }
}

TEST_F(Async, WhatIsCommittedMayBeLoadedMeanwhile) {
  Checkpointer checkpointer = make();
  RankState state = state_of(Cut::kRows, 1);
  checkpointer.save_async(1, state.sources()).wait();
  state.fill(2);
  SaveTicket ticket;
  {
    PausedWrites writes(outside_.path());
    ticket = checkpointer.save_async(2, state.sources());
    EXPECT_EQ(checkpointer.latest(), 1U);
    expect_content(checkpointer, 1, 1);
    expect_error_everywhere(ErrorKind::kNotFound, "checkpoint-2", [&] { static_cast<void>(checkpointer.tensors(2)); });
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ticket.wait();
  EXPECT_EQ(checkpointer.latest(), 2U);
  expect_content(checkpointer, 2, 2);
  state.fill(3);
  checkpointer.save_async(3, state.sources()).wait();  // descends from step 2, which was loaded last
  EXPECT_EQ(checkpointer.latest(), 3U);
  for (const StepInfo& info : checkpointer.steps()) EXPECT_TRUE(info.complete && !info.is_void) << info.step;
}

TEST_F(Async, AFailureIsThrownByItsTicketAndHindersNoLaterSave) {
  Checkpointer checkpointer = make();
  RankState state = state_of(Cut::kRows, 1);
  checkpointer.save(1, state.sources());
  {
    const Faults full_disk("write:path=.partial:errno=ENOSPC:after=1");
    SaveTicket ticket = checkpointer.save_async(2, state.sources());
    expect_error_everywhere(ErrorKind::kIo, "No space left", [&] { ticket.wait(); });
    expect_error_everywhere(ErrorKind::kIo, "No space left", [&] { ticket.wait(); });
    EXPECT_TRUE(ticket.test());
    EXPECT_FALSE(ticket.cancel());
  }
  EXPECT_EQ(checkpointer.latest(), 1U);
  EXPECT_TRUE(leftovers().empty());
  const Report report = checkpointer.save_async(2, state.sources()).wait();
  EXPECT_THAT(report.earlier_failure, HasSubstr("No space left"));
  expect_content(checkpointer, 2, 1);
  EXPECT_EQ(checkpointer.save_async(3, state.sources()).wait().earlier_failure, "");
  {
    SaveTicket ticket = checkpointer.save_async(3, state.sources());  // the background part finds step 3
    expect_error_everywhere(ErrorKind::kUsage, "exists", [&] { ticket.wait(); });
  }
  EXPECT_THAT(checkpointer.save(4, state.sources()).earlier_failure, HasSubstr("exists"));
  auto sources = state.sources();
  sources.pop_back();
  sources.front().shape = {1};
  EXPECT_THROW(static_cast<void>(checkpointer.save_async(5, sources)), Error) << "found at once";
  checkpointer.save_async(5, state.sources()).wait();
}

TEST_F(Async, ACancelledSaveLeavesNothing) {
  Checkpointer checkpointer = make();
  RankState state = state_of(Cut::kRows, 1);
  checkpointer.save(1, state.sources());
  {
    PausedWrites writes(outside_.path());
    SaveTicket ticket = checkpointer.save_async(2, state.sources());
    writes.reached();
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // by then cancel() was called on a rank
      writes.release();
    });
    EXPECT_TRUE(ticket.cancel());
    later.join();
    EXPECT_TRUE(ticket.test());
    expect_error_everywhere(ErrorKind::kState, "cancelled", [&] { ticket.wait(); });
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_TRUE(leftovers().empty());
  EXPECT_EQ(checkpointer.latest(), 1U);
  SaveTicket ticket = checkpointer.save_async(2, state.sources());
  ticket.wait();
  EXPECT_FALSE(ticket.cancel()) << "a step that is committed stays";
  expect_content(checkpointer, 2, 1);
}

TEST_F(Async, TicketAndCheckpointerMayGoInAnyOrder) {
  RankState state = state_of(Cut::kRows, 1);
  {
    Checkpointer checkpointer = make();
    { const SaveTicket dropped = checkpointer.save_async(1, state.sources()); }
    EXPECT_EQ(checkpointer.latest(), 1U) << "a ticket that goes has waited";
    SaveTicket ticket = checkpointer.save_async(2, state.sources());
    ticket = checkpointer.save_async(3, state.sources());
    EXPECT_EQ(ticket.step(), 3U);
  }
  SaveTicket ticket;
  EXPECT_TRUE(ticket.test());
  EXPECT_EQ(ticket.wait().bytes, 0U);
  EXPECT_FALSE(ticket.cancel());
  {
    Checkpointer checkpointer = make();
    state.fill(4);
    ticket = checkpointer.save_async(4, state.sources());
  }
  EXPECT_TRUE(ticket.test());
  EXPECT_GT(ticket.wait().bytes, 0U);
  Checkpointer checkpointer = make();
  expect_content(checkpointer, 4, 4);
}

TEST_F(Async, ExtrasMayGoAtOnce) {
  Checkpointer checkpointer = make();
  RankState state = state_of(Cut::kRows, 1);
  SaveTicket ticket;
  {
    Extras extras;
    extras.rank_blob.assign(1000, static_cast<std::byte>(world_.rank));
    extras.metadata = {{"loss", "2.5"}};
    extras.carry_texts = {{"config.json", "{}"}};
    ticket = checkpointer.save_async(1, state.sources(), extras);
    std::memset(extras.rank_blob.data(), 99, extras.rank_blob.size());
  }
  ticket.wait();
  const auto extras = checkpointer.load_extras(1);
  EXPECT_EQ(extras.rank_blob, std::vector<std::byte>(1000, static_cast<std::byte>(world_.rank)));
  EXPECT_EQ(extras.metadata.at("loss"), "2.5");
  EXPECT_EQ(extras.carried.at("config.json"), 2U);
}

TEST_F(Async, MomentsAreCodedBehindTheProgram) {
  Options options;
  options.files.max_bytes = 100'000;
  options.files.block_bytes = 4096;
  options.limits.memory_budget_bytes = 64 << 10;
  options.quantisation.codecs = {{"optimizer", "q8"}};
  options.checks.stale = StaleSections::kIgnore;  // applies to synchronous and asynchronous saves
  Checkpointer checkpointer = make(options);
  for (const Cut cut : {Cut::kColumns, Cut::kReplicated}) {
    const std::uint64_t step = cut == Cut::kColumns ? 1 : 3;
    MomentRank state(cut, world_.rank, world_.ranks);
    state.fill(1);
    checkpointer.save(step, state.sources());
    SaveTicket ticket = checkpointer.save_async(step + 1, state.sources());
    state.fill(2);
    EXPECT_TRUE(ticket.wait().warnings.empty());
    const auto load = [&](std::uint64_t from) {
      MomentRank loaded(Cut::kRows, world_.rank, world_.ranks);
      checkpointer.load(from, loaded.targets());
      std::vector<std::vector<std::byte>> content;
      for (std::size_t i = 0; i < loaded.tensors().size(); ++i) content.push_back(loaded.memory(i));
      return content;
    };
    EXPECT_TRUE(load(step) == load(step + 1));
  }
}

TEST_F(Async, IsSynchronousWhereItCannotBeOtherwise) {
  Options options = options_for_small_state("mpiio");
  Checkpointer checkpointer = make(options);
  RankState state = state_of(Cut::kRows, 1);
  SaveTicket ticket = checkpointer.save_async(1, state.sources());
  EXPECT_TRUE(ticket.test());
  const Report report = ticket.wait();
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_THAT(report.warnings[0], HasSubstr("synchronous: the calls of engine mpiio"));
  EXPECT_EQ(report.stall->snapshot_bytes, 0U);
  expect_content(checkpointer, 1, 1);
}

TEST_F(Async, PreparingTakesWhatTheFirstSaveWould) {
  Checkpointer checkpointer = make();
  RankState state = state_of(Cut::kRows, 1);
  checkpointer.prepare_async(state.sources());
  EXPECT_EQ(checkpointer.latest(), std::nullopt);
  {
    const Faults no_more_memory("memory.populate");
    const Report report = checkpointer.save_async(1, state.sources()).wait();
    EXPECT_TRUE(report.plan_reused);
    EXPECT_GT(report.stall->pool_bytes, 0U);
    checkpointer.release_memory();
    EXPECT_THROW(static_cast<void>(checkpointer.save_async(2, state.sources())), Error) << "it is the first one again";
  }
  checkpointer.release_memory();
  EXPECT_FALSE(checkpointer.save_async(2, state.sources()).wait().plan_reused);
  expect_content(checkpointer, 2, 1);
}

TEST_F(Async, KeepsToItsLimits) {
  Options options = options_for_small_state("posix");
  options.async.max_bytes_per_s = 400'000;
  options.async.cores = "0";
  Checkpointer checkpointer = make(options);
  RankState state = state_of(Cut::kRows, 1);
  const Report report = checkpointer.save_async(1, state.sources()).wait();
  EXPECT_GT(report.seconds, static_cast<double>(report.bytes) / world_.ranks / 400'000 * 0.7);
  expect_content(checkpointer, 1, 1);
  for (const char* cores : {"a", "1-", "3-1", "99999", "0,"}) {
    options.async.cores = cores;
    expect_error_everywhere(ErrorKind::kUsage, "no list of processors", [&] { make(options); });
  }
}

/// Memory that changes during its copy: the last byte changes when the copy reaches a page in its first half.
class MemoryThatChanges {
 public:
  static constexpr std::size_t kBytes = 1 << 20;
  MemoryThatChanges() {
    memory_ =
        static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction change {};
    change.sa_handler = [](int) {
      ::mprotect(memory_ + kPageAt, kPageBytes, PROT_READ | PROT_WRITE);
      memory_[kBytes - 1] ^= std::byte{1};
    };
    ::sigaction(SIGSEGV, &change, &before_);
    ::mprotect(memory_ + kPageAt, kPageBytes, PROT_NONE);
  }
  ~MemoryThatChanges() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(memory_, kBytes);
  }
  MemoryThatChanges(const MemoryThatChanges&) = delete;
  MemoryThatChanges& operator=(const MemoryThatChanges&) = delete;
  [[nodiscard]] const std::byte* data() const { return memory_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kPageAt = kBytes / 4;  // not in any sample
  static inline std::byte* memory_ = nullptr;
  struct sigaction before_ {};
};

TEST_F(Async, AStateThatIsChangedUnderTheCopyIsNotCommitted) {
  Checkpointer checkpointer = make();
  const MemoryThatChanges memory;
  Source source;
  source.name = "w";
  source.dtype = DType::kU8;
  source.shape = {MemoryThatChanges::kBytes * static_cast<std::uint64_t>(world_.ranks)};
  source.boxes = {{{MemoryThatChanges::kBytes * static_cast<std::uint64_t>(world_.rank)}, {MemoryThatChanges::kBytes}}};
  source.data = memory.data();
  SaveTicket ticket = checkpointer.save_async(1, {&source, 1});
  expect_error_everywhere(ErrorKind::kIntegrity, "tensor 'w' was changed while save_async() copied it",
                          [&] { ticket.wait(); });
  EXPECT_EQ(checkpointer.latest(), std::nullopt);
  EXPECT_NO_THROW(checkpointer.save_async(1, {&source, 1}).wait()) << "it changes once";
}

TEST(Snapshot, KnowsWhatWasChangedBehindItsBack) {
  std::vector<std::byte> first(100'000, std::byte{1});
  std::vector<std::byte> second(50, std::byte{2});
  const std::vector<plan::MemoryBox> memory = {{0, {{0}, {100'000}}, first}, {1, {{0}, {50}}, second}};
  const std::vector<plan::MemorySpan> spans = {{10, 90'000}, {0, 50}};
  checkpoint::Snapshot snapshot;
  snapshot.reserve(checkpoint::snapshot_bytes({memory, spans}));
  snapshot.place({memory, spans});
  EXPECT_FALSE(snapshot.wait_for(snapshot.boxes()[1].bytes, std::chrono::milliseconds(0)));
  snapshot.copy();
  snapshot.end_copy();
  EXPECT_TRUE(snapshot.wait_for(snapshot.boxes()[1].bytes, std::chrono::milliseconds(0)));
  EXPECT_EQ(snapshot.copied_bytes(), 90'040U);
  EXPECT_EQ(snapshot.first_changed(), std::nullopt);
  first.assign(first.size(), std::byte{9});
  EXPECT_EQ(snapshot.first_changed(), std::nullopt) << "the program may go on";
  snapshot.boxes()[1].bytes[49] = std::byte{3};
  EXPECT_EQ(snapshot.first_changed(), 1U);
}

TEST(Snapshot, LiesAsTheFilesDo) {
  std::vector<std::vector<std::byte>> data;
  std::vector<plan::MemoryBox> memory;
  std::vector<plan::MemorySpan> spans;
  const auto add = [&](std::uint32_t box, std::uint64_t bytes, plan::MemorySpan span) {
    data.emplace_back(bytes, static_cast<std::byte>(box + 1));
    memory.push_back({box, {{0}, {bytes}}, data.back()});
    spans.push_back(span);
  };
  add(0, 5'000, {0, 5'000});
  add(1, 10'000, {100, 9'000});  // its copied bytes begin where the third span ends
  add(2, 7'001, {0, 7'001});
  add(3, 3'000, {0, 0});
  const std::uint64_t third = 123'457;
  const std::vector<std::optional<io::BoxInFile>> places = {std::nullopt, io::BoxInFile{1, third + 7'001 - 100},
                                                            io::BoxInFile{1, third}, io::BoxInFile{0, 1}};
  checkpoint::Snapshot snapshot;
  const checkpoint::SnapshotBytes bytes = checkpoint::snapshot_bytes({memory, spans, places});
  EXPECT_GE(bytes.host, 5'000U + 8'900 + 7'001);
  EXPECT_LE(bytes.host, 5'000U + 8'900 + 7'001 + 4'096 + 64);
  snapshot.reserve(bytes);
  snapshot.place({memory, spans, places});
  snapshot.copy();
  const auto boxes = snapshot.boxes();
  const auto address = [](const std::byte* byte) { return reinterpret_cast<std::uintptr_t>(byte); };
  EXPECT_EQ(address(boxes[2].bytes.data()) % 4'096, third % 4'096);
  EXPECT_EQ(boxes[1].bytes.data() + 100, boxes[2].bytes.data() + 7'001) << "one write";
  for (std::size_t b = 0; b < 3; ++b) {
    EXPECT_EQ(0, std::memcmp(boxes[b].bytes.data() + spans[b].begin, data[b].data() + spans[b].begin, spans[b].bytes()))
        << b;
  }
}

}  // namespace
}  // namespace cairn::test
