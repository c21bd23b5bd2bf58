// Three ranks, one of which stops, works long, or fails alone; the scenario is the first argument.
// Rank 0 prints "SCENARIO: good" when every rank saw the expected error.
#include <fmt/core.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/process.hpp"

namespace {

using cairn::Error;
using cairn::ErrorKind;
using cairn::OnSilence;
using namespace std::chrono_literals;

constexpr int kCulprit = 1;
constexpr double kLimitSeconds = 2;
constexpr double kAtOnceSeconds = 1.5;  // without waiting for the limit again
constexpr double kMostSeconds =
    250;  // limit for a whole call, even on a busy machine; below the 300 s after which failed_alone() would end

int rank = 0;
int ranks = 0;
std::vector<int> processes;
bool good = true;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  good = false;
  fmt::print(stderr, "rank {}: {}\n", rank, what);
}

/// The message of the Error(kState) that `call` throws after at least `least_s` and at most `most_s` seconds.
std::string state_error(const std::function<void()>& call, double least_s, double most_s) {
  const double start = MPI_Wtime();
  std::string text;
  try {
    call();
    expect(false, "nothing was thrown");
  } catch (const Error& error) {
    text = error.what();
    expect(error.kind() == ErrorKind::kState, "another kind of error: " + text);
  }
  const double seconds = MPI_Wtime() - start;
  expect(seconds >= least_s && seconds <= most_s, fmt::format("thrown after {} s: {}", seconds, text));
  return text;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) expect(text.find(part) != std::string::npos, "no '" + part + "' in: " + text);
}

/// The phrase by which every rank, the culprit included, must name the missing rank.
std::string missing() { return fmt::format("rank {} of {} ({}) is missing", kCulprit, ranks, cairn::os::host_name()); }

/// Rank 0 resumes the culprit after the other ranks have had time to give up.
void go_on() {
  std::this_thread::sleep_for(500ms);
  if (rank == 0) ::kill(processes[kCulprit], SIGCONT);
}

/// The other ranks name the culprit and the step within the limit, and so does the culprit once it continues.
void stopped_in_a_collective() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  const auto work = [&] {
    if (rank == kCulprit) ::raise(SIGSTOP);
  };
  const auto call = [&] {
    cairn::comm::agree(*communicator, "write data files", work);
    // Messages sent before the others gave up may still serve the culprit; later ones do not.
    if (rank == kCulprit) communicator->barrier();
  };
  const auto text = state_error(call, rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text,
               {"no progress on any rank for 2 s", "step 'write data files'", missing() + ", last heard of in step '"});
  expect(communicator->is_dead(), "not dead");
  const auto again = state_error([&] { communicator->barrier(); }, 0, kAtOnceSeconds);
  expect_parts(again, {"the ranks gave each other up before", missing()});
  go_on();
}

std::vector<cairn::Source> sources_of(std::vector<float>& values) {
  cairn::Source source;
  source.name = "w";
  source.shape = {values.size() * static_cast<std::size_t>(ranks)};
  source.boxes = {{{values.size() * static_cast<std::size_t>(rank)}, {values.size()}}};
  source.data = values.data();
  return {source};
}

cairn::Options options_with(OnSilence then, std::function<void(const std::string&)> callback = {}) {
  cairn::Options options;
  options.engine.name = "posix";
  options.files.block_bytes = 64 << 10;  // so that every rank writes
  options.waiting = {kLimitSeconds, then, std::move(callback)};
  return options;
}

void stopped_in_a_save() {
  cairn::Checkpointer checkpointer(MPI_COMM_WORLD, "root", options_with(OnSilence::kError));
  std::vector<float> values(1 << 18, 1.0F);
  checkpointer.save(1, sources_of(values));
  cairn::os::set_faults("write:rank=1:path=.safetensors:stop=1");
  const auto text =
      state_error([&] { checkpointer.save(2, sources_of(values)); }, rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text, {"no progress on any rank for 2 s in phase '", missing() + ", last heard of in phase '"});
  state_error([&] { checkpointer.save(3, sources_of(values)); }, 0, kAtOnceSeconds);
  state_error([&] { static_cast<void>(checkpointer.latest()); }, 0, kAtOnceSeconds);
  go_on();
}

void stopped_before_the_commit() {
  std::string said;
  cairn::Checkpointer checkpointer(MPI_COMM_WORLD, "root",
                                   options_with(OnSilence::kCallback, [&](const std::string& text) { said = text; }));
  std::vector<float> values(1 << 10, 1.0F);
  cairn::os::set_faults("commit.manifest:rank=1:stop=1");
  const auto text =
      state_error([&] { checkpointer.save(1, sources_of(values)); }, rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text, {"in phase 'commit', step 'commit.manifest'",
                      missing() + ", last heard of in phase 'commit', step 'commit."});
  // The first rank that gives up notifies the others: at least one rank gets a callback.
  int called = said.empty() ? 0 : 1;
  if (called != 0) expect(said == text, "another text in the callback: " + said);
  go_on();
  MPI_Allreduce(MPI_IN_PLACE, &called, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(called >= 1, "no callback");
}

void stopped_before_the_constructor() {
  if (rank == kCulprit) ::raise(SIGSTOP);
  const auto text =
      state_error([&] { const cairn::Checkpointer made(MPI_COMM_WORLD, "root", options_with(OnSilence::kError)); },
                  rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text, {"some ranks of the communicator did not come to this call within 2 s"});
  go_on();
}

void stopped_before_a_new_communicator() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  if (rank == kCulprit) ::raise(SIGSTOP);
  const auto text = state_error([&] { communicator->node(); }, rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text, {missing()});
  go_on();
}

/// The node's communicator exists already; a program's background threads must not block in MPI.
void stopped_before_a_communicator_of_the_node_again() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  expect(communicator->node()->size() == ranks, "not all ranks are on the node");
  if (rank == kCulprit) ::raise(SIGSTOP);
  const auto text = state_error([&] { communicator->node(); }, rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text, {missing()});
  go_on();
}

/// The others have moved on to another phase; heartbeats have told them where the culprit is.
void stopped_after_beats() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  const auto call = [&] {
    cairn::checkpoint::run_call(*communicator, std::nullopt, "save", [&] {
      communicator->barrier();
      communicator->progress("fsync");
      for (int i = 0; i < 20 && rank == kCulprit; ++i) {
        std::this_thread::sleep_for(50ms);
        communicator->progress("fsync");
      }
      if (rank == kCulprit) ::raise(SIGSTOP);
      communicator->progress("commit");
      communicator->barrier();
      communicator->barrier();  // the culprit's part of the first barrier may complete when it continues
    });
  };
  const auto text = state_error(call, rank == kCulprit ? 0 : 2.5, kMostSeconds);
  expect_parts(text,
               {"no progress on any rank for 2 s in phase 'commit'", missing() + ", last heard of in phase 'fsync' "});
  go_on();
}

/// A rank's position in an earlier call means nothing for the current call.
void stopped_at_the_beginning_of_a_call() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  const auto call = [&] {
    cairn::checkpoint::run_call(*communicator, std::nullopt, "save", [&] {
      communicator->barrier();
      communicator->barrier();
    });
  };
  call();
  if (rank == kCulprit) ::raise(SIGSTOP);
  const auto text = state_error(call, rank == kCulprit ? 0 : 1.5, kMostSeconds);
  expect_parts(text, {"no progress on any rank for 2 s in phase 'save'", missing() + ", not heard of in this call; "});
  go_on();
}

/// One rank works three times as long as the limit and reports progress; the others wait.
void long_work_with_beats() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  const double start = MPI_Wtime();
  cairn::comm::agree(*communicator, "remove a checkpoint", [&] {
    for (int i = 0; i < 60 && rank == kCulprit; ++i) {
      std::this_thread::sleep_for(100ms);
      communicator->progress("commit");
    }
  });
  expect(MPI_Wtime() - start > 2.5 * kLimitSeconds, "did not wait");
  communicator->barrier();
}

/// Work on files needs no reports: every file operation counts as progress.
void long_work_on_files() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kLimitSeconds, OnSilence::kError, {}});
  const double start = MPI_Wtime();
  cairn::checkpoint::run_call(*communicator, std::nullopt, "commit", [&] {
    cairn::comm::agree(*communicator, "remove a checkpoint", [&] {
      for (int i = 0; i < 60 && rank == kCulprit; ++i) {
        std::this_thread::sleep_for(100ms);
        cairn::os::make_new_directory("old");
        cairn::os::remove_tree("old");
      }
    });
  });
  expect(MPI_Wtime() - start > 2.5 * kLimitSeconds, "did not wait");
}

/// The limit is long: the others must learn of the failure from a message, not from silence.
void failed_alone() {
  const auto communicator = cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {300, OnSilence::kError, {}});
  const auto call = [&] {
    cairn::checkpoint::run_call(*communicator, std::nullopt, "save", [&] {
      if (rank == kCulprit) throw std::runtime_error("something unforeseen");
      communicator->barrier();
    });
  };
  const auto text = state_error(call, 0, kMostSeconds);
  expect_parts(text, {"rank 1 failed alone in phase 'save'", ": something unforeseen"});
}

const std::map<std::string, void (*)()> kScenarios = {
    {"collective", stopped_in_a_collective},
    {"save", stopped_in_a_save},
    {"commit", stopped_before_the_commit},
    {"constructor", stopped_before_the_constructor},
    {"node", stopped_before_a_new_communicator},
    {"node_again", stopped_before_a_communicator_of_the_node_again},
    {"heard", stopped_after_beats},
    {"unheard", stopped_at_the_beginning_of_a_call},
    {"beats", long_work_with_beats},
    {"files", long_work_on_files},
    {"alone", failed_alone},
};

}  // namespace

int main(int argc, char** argv) {
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  cairn::os::set_fault_rank(rank);
  const auto scenario = kScenarios.find(argc > 1 ? argv[1] : "");
  if (scenario == kScenarios.end() || ranks != 3) {
    std::fputs("usage: mpirun -n 3 waits_program SCENARIO\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (rank == 0) std::filesystem::remove_all("root");
  const int process = ::getpid();
  processes.resize(3);
  MPI_Allgather(&process, 1, MPI_INT, processes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  scenario->second();
  int all_good = good ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all_good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) fmt::print("{}: {}\n", scenario->first, all_good != 0 ? "good" : "bad");
  std::fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  std::_Exit(all_good != 0 ? 0 : 1);  // MPI_Finalize may wait for abandoned operations
}
