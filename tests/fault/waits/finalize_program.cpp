// MPI_Finalize during N asynchronous saves (N is the argument), each with a separate Checkpointer. The saves are
// finished first; later calls throw an error, since MPI has been finalised. With CAIRN_TEST_THREADS=funneled only one
// thread may call MPI, and the saves are done when their calls return. Two ranks; rank 0 prints "finalize: good".
#include <fmt/core.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "os/fault.hpp"

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

int rank = 0;
bool good = true;

void expect(bool condition, const std::string& what) {
  if (!condition) fmt::print(stderr, "rank {}: {}\n", rank, what);
  good = good && condition;
}

std::string root_of(std::uint64_t step) { return fmt::format("root-{}", step); }
std::string gate_of(std::uint64_t step) { return fmt::format("gate-{}", step); }

void wait_for(const fs::path& file) {
  while (!fs::exists(file)) std::this_thread::sleep_for(1ms);
}

std::string error_of_a_save(cairn::Checkpointer& checkpointer, const std::vector<cairn::Source>& sources) {
  try {
    checkpointer.save(99, sources);
  } catch (const cairn::Error& error) {
    if (error.kind() == cairn::ErrorKind::kState) return error.what();
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t saves = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  const char* threads = std::getenv("CAIRN_TEST_THREADS");
  const bool is_alone = threads != nullptr && std::string_view(threads) == "funneled";
  const int level = is_alone ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE;
  int granted = 0;
  MPI_Init_thread(&argc, &argv, level, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  expect(granted == level, "another thread level");
  cairn::os::set_fault_rank(rank);
  std::mutex mutex;
  std::string said;
  cairn::set_log_sink([&](cairn::LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    said += line;
  });
  const auto is_waited_for = [&](std::uint64_t step) {
    const std::lock_guard lock(mutex);
    return said.find(fmt::format("MPI_Finalize was called while step {} ", step)) != std::string::npos;
  };
  std::string faults;
  for (std::uint64_t step = 1; step <= saves; ++step) {
    if (rank == 0) {
      fs::remove_all(root_of(step));
      fs::remove(gate_of(step));
      fs::remove(gate_of(step) + ".reached");
    }
    faults += fmt::format("commit.manifest:rank=0:times=1:path={}:pause={};", root_of(step), gate_of(step));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!is_alone) cairn::os::set_faults(faults);

  std::vector<float> values(1 << 16, 1.0F);
  cairn::Source source;
  source.name = "w";
  source.shape = {2, values.size()};
  source.boxes = {{{static_cast<std::uint64_t>(rank), 0}, {1, values.size()}}};
  source.data = values.data();
  const std::vector<cairn::Source> sources = {source};
  std::vector<cairn::Checkpointer> checkpointers;
  std::vector<cairn::SaveTicket> tickets;
  for (std::uint64_t step = 1; step <= saves; ++step) {
    checkpointers.emplace_back(MPI_COMM_WORLD, root_of(step));
    tickets.push_back(checkpointers.back().save_async(step, sources));
    if (is_alone) continue;
    if (rank == 0) wait_for(gate_of(step) + ".reached");
    expect(!fs::exists(fs::path(root_of(step)) / fmt::format("checkpoint-{}", step)), "saved too early");
  }
  // Each save continues once MPI_Finalize waits for it, or after a while.
  std::thread later([&] {
    const auto until = std::chrono::steady_clock::now() + 60s;
    std::set<std::uint64_t> open;
    while (rank == 0 && !is_alone && open.size() < saves) {
      for (std::uint64_t step = 1; step <= saves; ++step) {
        if (open.contains(step) || (!is_waited_for(step) && std::chrono::steady_clock::now() < until)) continue;
        std::ofstream(gate_of(step)) << "";
        open.insert(step);
      }
      std::this_thread::sleep_for(1ms);
    }
  });
  MPI_Finalize();
  later.join();
  for (std::uint64_t step = 1; step <= saves; ++step) {
    cairn::SaveTicket& ticket = tickets[step - 1];
    expect(ticket.test(), "MPI_Finalize did not wait for a save");
    const cairn::Report report = ticket.wait();
    expect(report.step == step, "another step");
    expect(report.warnings.empty() != is_alone, "the save was not what the thread level allows");
    expect(fs::exists(report.directory / "cairn.json"), "nothing was saved");
    expect(rank != 0 || is_waited_for(step) != is_alone, fmt::format("said of step {}: {}", step, said));
    const std::string text = error_of_a_save(checkpointers[step - 1], sources);
    expect(text.find("MPI has been finalised") != std::string::npos, "a save after MPI_Finalize: " + text);
  }
  checkpointers.clear();
  cairn::set_log_sink({});
  if (rank == 0) fmt::print("finalize: {}\n", good ? "good" : "bad");
  return good ? 0 : 1;
}
