// Loads checkpoint-1 of a root that checkpoint.py made. Rank r of n loads all tensors of every n-th parameter, from
// parameter r on. Prints the largest processor time of a rank (s) and the largest growth of a rank's peak memory (KiB).
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace {

constexpr std::uint64_t kExperts = 256;
constexpr std::uint64_t kElements = 8;

/// The name of checkpoint.py's parameter `i`, counted before the names are sorted.
std::string parameter(std::uint64_t i) {
  static const char* const kProjections[] = {"gate_proj", "up_proj", "down_proj"};
  const std::uint64_t expert = i / 3;
  return "model.layers." + std::to_string(expert / kExperts) + ".mlp.experts." + std::to_string(expert % kExperts) +
         "." + kProjections[i % 3] + ".weight";
}

double processor_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

long peak_kib() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss;
}

int run(const char* root, std::uint64_t tensors) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<cairn::Target> targets;
  std::vector<std::uint64_t> memory;
  const auto want = [&](const char* section, std::string name, cairn::DType dtype) {
    cairn::Target target;
    target.section = section;
    target.name = std::move(name);
    target.dtype = dtype;
    target.shape = {2, 4};
    target.boxes = {{{0, 0}, {2, 4}}};
    targets.push_back(std::move(target));
  };
  for (auto i = static_cast<std::uint64_t>(rank); i < tensors / 4; i += static_cast<std::uint64_t>(ranks)) {
    want("model", parameter(i), cairn::DType::kBF16);
    want("master_weights", parameter(i), cairn::DType::kF32);
    want("optimizer", parameter(i) + ".exp_avg", cairn::DType::kF32);
    want("optimizer", parameter(i) + ".exp_avg_sq", cairn::DType::kF32);
  }
  memory.resize(targets.size() * kElements / 2, 0xffffffffffffffffULL);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i].data = &memory[i * kElements / 2];
  const double before = processor_seconds();
  const long kib_before = peak_kib();
  cairn::Checkpointer(MPI_COMM_WORLD, root).load(1, targets);
  double seconds = processor_seconds() - before;
  long kib = peak_kib() - kib_before;
  // All stored values are zero. A BF16 tensor fills only the first half of its memory.
  int wrong = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::size_t words = targets[i].dtype == cairn::DType::kBF16 ? 2 : 4;
    const auto* const at = &memory[i * kElements / 2];
    wrong += std::all_of(at, at + words, [](std::uint64_t word) { return word == 0; }) ? 0 : 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &kib, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%.3f %ld\n", seconds, kib);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 2;
  if (argc == 3) status = run(argv[1], std::strtoull(argv[2], nullptr, 10));
  MPI_Finalize();
  return status;
}
