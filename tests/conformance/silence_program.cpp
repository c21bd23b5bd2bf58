// One of three ranks stops, in every phase of every call. The others must end in time and name the stopped rank.
// Arguments: an engine ("auto" in memory bypasses the windows), a directory for roots, the number of scenarios to draw
// (0: all), a seed, and, to repeat a scenario, part of its name. CAIRN_TEST_THREADS=funneled: one thread may call MPI.
//
// The phases come from the reports of an undisturbed run, so that new phases are found.
// File operations, commit steps, and phases of calls without a report are fault points. The stopped rank is random. It
// continues after the others have ended, and must notice that. Rank 0 prints "silence ENGINE: N of M good, seed SEED".
#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "os/fault.hpp"
#include "os/process.hpp"
#include "silence_calls.hpp"

namespace {

namespace fs = std::filesystem;
using cairn::Error;
using cairn::ErrorKind;
using cairn::test::kLongSeconds;
using cairn::test::kSave;
using cairn::test::kSaveAsync;
using cairn::test::StoppedCall;
using cairn::test::Trial;

/// On a busy machine a rank may be paused for some seconds, and an fsync on a shared disk may take a long time.
constexpr double kLimitSeconds = 10;
/// The limit for ranks that wait for a stopped rank on a very busy machine.
constexpr double kMostSeconds = 10 * kLimitSeconds;
/// A rank that waits this long hangs.
constexpr unsigned kHangSeconds = 600;

int rank = 0;
int ranks = 0;
std::vector<int> processes;
std::vector<std::string> hosts;
std::string now_running;

/// The lines of the log.
std::mutex said_mutex;
std::vector<std::string> said;

void hear(cairn::LogLevel /*level*/, std::string_view line) {
  const std::lock_guard lock(said_mutex);
  said.emplace_back(line);
}

std::vector<std::string> take_said() {
  const std::lock_guard lock(said_mutex);
  return std::exchange(said, {});
}

/// Ends the job; the launcher may also hang while a process is stopped.
void tell_of_hang(int /*signal*/) {
  constexpr char kText[] = "bad: a rank hangs: ";
  static_cast<void>(::write(2, kText, sizeof kText - 1));
  static_cast<void>(::write(2, now_running.data(), now_running.size()));
  for (const int process : processes) ::kill(process, SIGKILL);
}

struct Scenario {
  StoppedCall call;
  std::string fault;  ///< without its rank
  int culprit = 0;
  [[nodiscard]] std::string text() const { return fmt::format("{}, {}, rank {}", call.name, fault, culprit); }
};

/// All scenarios of an engine, the same on all ranks.
std::vector<Scenario> scenarios_of(const std::string& engine, const fs::path& place, std::mt19937& random) {
  std::vector<Scenario> all;
  Trial trial(engine, place / "undisturbed", kLongSeconds);
  const auto add = [&](const StoppedCall& call, const std::string& fault) {
    all.push_back({call, fault, static_cast<int>(random() % static_cast<unsigned>(ranks))});
  };
  for (const StoppedCall& call : cairn::test::reporting_calls()) {
    (trial.*call.run)();
    for (const cairn::Phase& phase : trial.phases) add(call, fmt::format("call.phase:path={}", phase.name));
  }
  for (const StoppedCall& call : {kSave, kSaveAsync}) {
    for (const char* operation : {"open", "write", "fsync", "close"}) {
      add(call, fmt::format("{}:path=.safetensors", operation));
    }
    if (engine == "mpiio") add(call, "mpiio.open");  // the other ranks are entering MPI_File_open
    for (const char* step : {"begin", "carry", "blocks", "manifest", "sync", "rename", "publish", "latest"}) {
      add(call, fmt::format("commit.{}", step));
    }
  }
  for (const cairn::test::StoppingPoint& point : cairn::test::stopping_points(engine)) {
    add(point.call, point.fault);
    if (point.is_of_rank_0) all.back().culprit = 0;
  }
  return all;
}

/// Collective: exchanges the ranks' process ids and hosts.
void get_known() {
  const auto all = static_cast<std::size_t>(ranks);
  const int process = ::getpid();
  processes.resize(all);
  MPI_Allgather(&process, 1, MPI_INT, processes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  constexpr int kNameBytes = 64;
  std::string mine = cairn::os::host_name();
  mine.resize(kNameBytes, '\0');
  std::string names(all * kNameBytes, '\0');
  MPI_Allgather(mine.data(), kNameBytes, MPI_CHAR, names.data(), kNameBytes, MPI_CHAR, MPI_COMM_WORLD);
  for (std::size_t r = 0; r < all; ++r) hosts.emplace_back(names.substr(r * kNameBytes, kNameBytes).c_str());
}

/// The message of the error that the call throws, or "".
std::string outcome_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kState ? error.what() : fmt::format("another kind of error: {}", error.what());
  } catch (const std::exception& error) {
    return fmt::format("another kind of error: {}", error.what());
  }
}

/// The ranks that have ended notify the first of them, which resumes the culprit.
void let_go_on(int culprit) {
  const int first = culprit == 0 ? 1 : 0;
  if (rank == culprit) return;
  if (rank != first) {
    MPI_Send(nullptr, 0, MPI_BYTE, first, 0, MPI_COMM_WORLD);
    return;
  }
  for (int others = ranks - 2; others > 0; --others) {
    MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  ::kill(processes[static_cast<std::size_t>(culprit)], SIGCONT);
}

/// The phrase by which all ranks must name the stopped rank.
std::string missing(int culprit) {
  return fmt::format("rank {} of {} ({}) is missing", culprit, ranks, hosts[static_cast<std::size_t>(culprit)]);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Collective: whether each rank ended as it should; prints any problem.
bool is_good(const std::string& problem) {
  if (!problem.empty()) fmt::print(stderr, "bad: {}  {}\n", now_running, problem);
  int good = problem.empty() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return good != 0;
}

bool stop_in(const Scenario& scenario, const std::string& engine, const fs::path& root) {
  now_running = fmt::format("rank {}: {}: {}\n", rank, engine, scenario.text());
  ::alarm(kHangSeconds);
  std::string problem;
  {
    Trial trial(engine, root, kLimitSeconds);
    cairn::os::set_faults(fmt::format("{}:rank={}:times=1:stop=1", scenario.fault, scenario.culprit));
    const auto start = std::chrono::steady_clock::now();
    const std::string text = outcome_of([&] { (trial.*scenario.call.run)(); });
    const double seconds = seconds_since(start);
    let_go_on(scenario.culprit);
    const std::string expected = missing(scenario.culprit);
    if (rank == scenario.culprit) {
      if (cairn::os::fault_hits() != 1) problem = "it was not stopped";
    } else if (text.find(expected) == std::string::npos) {
      problem = fmt::format("expected '{}', got '{}'", expected, text);
    } else if (seconds > kMostSeconds) {
      problem = fmt::format("it took {:.0f} s", seconds);
    }
    cairn::os::set_faults("");
    // No rank can communicate any more.
    const std::string again = outcome_of([&] {
      if (!scenario.call.is_of_checkpointer) return trial.communicator->barrier();
      trial.checkpointer->save(3, trial.sources());
    });
    if (problem.empty() && again.empty()) problem = "the next call threw nothing";
  }
  ::alarm(0);
  return is_good(problem);
}

/// One rank does not reach the destruction of its objects: the others wait for it until the limit, and report it.
bool stop_before_the_end(const std::string& engine, const fs::path& root, int culprit) {
  now_running = fmt::format("rank {}: {}: destructor, rank {}\n", rank, engine, culprit);
  ::alarm(kHangSeconds);
  std::string problem;
  {
    Trial trial(engine, root, kLimitSeconds);
    take_said();
    if (rank == culprit) ::raise(SIGSTOP);
    const auto end = [&](auto& object) {
      const auto start = std::chrono::steady_clock::now();
      object.reset();
      const double seconds = seconds_since(start);
      const std::vector<std::string> lines = take_said();
      if (rank == culprit || !problem.empty()) return;
      std::string all;
      for (const std::string& line : lines) all += line + "; ";
      const bool is_said = lines.size() == 1 &&
                           all.find("did not see all ranks come to the end") != std::string::npos &&
                           all.find(missing(culprit)) != std::string::npos;
      if (!is_said) problem = fmt::format("expected one line with '{}', got '{}'", missing(culprit), all);
      if (seconds > kMostSeconds) problem = fmt::format("it took {:.0f} s", seconds);
    };
    end(trial.checkpointer);
    end(trial.communicator);
    let_go_on(culprit);
  }
  ::alarm(0);
  return is_good(problem);
}

}  // namespace

int main(int argc, char** argv) {
  int granted = 0;
  const char* threads = std::getenv("CAIRN_TEST_THREADS");
  const bool is_alone = threads != nullptr && std::string(threads) == "funneled";  // so no MPI call can be abandoned
  MPI_Init_thread(&argc, &argv, is_alone ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  cairn::os::set_fault_rank(rank);
  if (argc < 5 || ranks != 3) {
    std::fputs("usage: mpirun -n 3 silence_program ENGINE FOLDER SCENARIOS SEED [TEXT OF ONE]\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  std::signal(SIGALRM, tell_of_hang);
  ::setenv("CAIRN_LOG_ALL_RANKS", "1", 1);
  cairn::set_log_sink(hear);
  const std::string engine = argv[1];
  const fs::path place = fs::path(argv[2]) / engine;
  const std::size_t drawn = std::strtoul(argv[3], nullptr, 10);
  std::mt19937 random(static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10)));
  get_known();

  std::vector<Scenario> scenarios = scenarios_of(engine, place, random);
  if (argc > 5) {
    std::erase_if(scenarios, [&](const Scenario& one) { return one.text().find(argv[5]) == std::string::npos; });
  } else if (drawn != 0) {
    // Always included: a rank that stops in an fsync or before MPI_File_open while the others wait inside the engine.
    const auto drawable = std::stable_partition(scenarios.begin(), scenarios.end(), [](const Scenario& one) {
      return one.call.run == kSave.run && (one.fault.starts_with("fsync") || one.fault == "mpiio.open");
    });
    std::shuffle(drawable, scenarios.end(), random);
    const auto kept = static_cast<std::size_t>(drawable - scenarios.begin()) + drawn;
    scenarios.resize(std::min(kept, scenarios.size()));
  }
  std::size_t good = 0;
  for (std::size_t n = 0; n < scenarios.size(); ++n) {
    if (stop_in(scenarios[n], engine, place / std::to_string(n))) ++good;
  }
  const std::size_t all = scenarios.size() + 1;
  if (stop_before_the_end(engine, place / "end", static_cast<int>(random() % static_cast<unsigned>(ranks)))) ++good;
  if (rank == 0) fmt::print("silence {}: {} of {} good, seed {}\n", engine, good, all, argv[4]);
  std::fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  std::_Exit(good == all ? 0 : 1);  // MPI_Finalize may wait for abandoned operations
}
