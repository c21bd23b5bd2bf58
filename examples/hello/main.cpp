// Saves a tensor that is spread over all ranks, or loads it when an earlier run has saved it, on any number of ranks.
#include <cairn/checkpoint.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

int main(int argc, char** argv) {
  int thread_level = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &thread_level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto row_of = [&](int part) { return 1000UL * static_cast<unsigned>(part) / static_cast<unsigned>(ranks); };
  const auto first = row_of(rank), rows = row_of(rank + 1) - first;  // this rank's, of a tensor of 1000 x 512
  std::vector<float> weight(rows * 512), loaded(rows * 512);
  std::iota(weight.begin(), weight.end(), static_cast<float>(first * 512));
  const cairn::Shard shard{"model", "wte.weight", cairn::DType::kF32, {1000, 512}, {{{first, 0}, {rows, 512}}}};
  bool resumed = false, equal = false;
  {
    cairn::Checkpointer checkpointer(MPI_COMM_WORLD, "run1");
    resumed = checkpointer.latest().has_value();
    if (!resumed) checkpointer.save(100, std::vector<cairn::Source>{{shard, weight.data()}});
    checkpointer.load_latest(std::vector<cairn::Target>{{shard, loaded.data()}});
    equal = loaded == weight;
  }
  MPI_Allreduce(MPI_IN_PLACE, &equal, 1, MPI_CXX_BOOL, MPI_LAND, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%s, ranks: %d, equal: %s\n", resumed ? "resumed" : "saved", ranks, equal ? "yes" : "NO");
  MPI_Finalize();
  return equal ? 0 : 1;
}
