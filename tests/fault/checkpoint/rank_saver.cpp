// Ranks that save again and again until they are killed: rank_saver ROOT save|async PIDS LIMIT_S [LEASE_S]
//
// Each rank writes its process id into the file PIDS/RANK. Rank 0 prints "saved STEP" for every checkpoint that is on
// storage. The state of step s has s in every element. When a rank is lost, the others print the error and the seconds
// until they got it, and end with exit code 3.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace {

constexpr std::size_t kTensors = 6;
constexpr std::uint64_t kRows = 96;
constexpr std::uint64_t kColumns = 2048;

class State {
 public:
  State(int rank, int ranks)
      : first_(kRows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks)),
        rows_(kRows * static_cast<std::uint64_t>(rank + 1) / static_cast<std::uint64_t>(ranks) - first_),
        values_(kTensors * rows_ * kColumns) {}

  void fill(std::uint64_t step) { std::fill(values_.begin(), values_.end(), static_cast<float>(step)); }
  [[nodiscard]] bool is_of(std::uint64_t step) const {
    return std::all_of(values_.begin(), values_.end(), [&](float value) { return value == static_cast<float>(step); });
  }
  template <class Shard>
  std::vector<Shard> shards() {
    std::vector<Shard> all(kTensors);
    for (std::size_t n = 0; n < kTensors; ++n) {
      all[n].name = "tensor." + std::to_string(n);
      all[n].shape = {kRows, kColumns};
      all[n].boxes = {{{first_, 0}, {rows_, kColumns}}};
      all[n].data = values_.data() + n * rows_ * kColumns;
    }
    return all;
  }

 private:
  std::uint64_t first_;
  std::uint64_t rows_;
  std::vector<float> values_;
};

cairn::Options options_for(double limit_s) {
  cairn::Options options;
  options.files.max_bytes = 400'000;
  options.files.block_bytes = 64 << 10;
  options.limits.memory_budget_bytes = 1 << 20;
  options.overwrite = true;
  options.waiting.limit_s = limit_s;
  return options;
}

/// Saves until an Error occurs. `moved` is the last time at which this rank made progress.
void save_for_ever(const std::string& root, bool is_async, const cairn::Options& options, int rank, int ranks,
                   std::chrono::steady_clock::time_point& moved) {
  cairn::Checkpointer checkpointer(MPI_COMM_WORLD, root, options);
  State state(rank, ranks);
  std::uint64_t step = 0;
  if (checkpointer.latest()) {
    step = checkpointer.load_latest(state.shards<cairn::Target>()).step;
    if (!state.is_of(step)) throw cairn::Error(cairn::ErrorKind::kIntegrity, "the newest checkpoint is mixed");
  }
  for (;;) {
    moved = std::chrono::steady_clock::now();
    state.fill(++step);
    if (is_async) {
      cairn::SaveTicket ticket = checkpointer.save_async(step, state.shards<cairn::Source>());
      state.fill(0);
      ticket.wait();
    } else {
      checkpointer.save(step, state.shards<cairn::Source>());
    }
    if (rank == 0) std::cout << "saved " << step << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "usage: rank_saver ROOT save|async PIDS LIMIT_S [LEASE_S]\n");
    return 2;
  }
  cairn::Options options = options_for(std::stod(argv[4]));
  if (argc == 6) options.lease = {std::stod(argv[5]), 60};  // to take over from a stopped saver
  int granted = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::ofstream(std::string(argv[3]) + "/" + std::to_string(rank)) << ::getpid();
  auto moved = std::chrono::steady_clock::now();
  try {
    save_for_ever(argv[1], std::string(argv[2]) == "async", options, rank, ranks, moved);
  } catch (const cairn::Error& error) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - moved).count();
    std::cout << "rank " << rank << " was told after " << seconds << " s: " << error.what() << std::endl;
    ::_exit(error.kind() == cairn::ErrorKind::kState ? 3 : 4);  // MPI is unusable now
  }
}
