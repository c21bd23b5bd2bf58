// Trains a tensor spread over all ranks: loads the newest checkpoint, on any number of ranks, and saves the next.
#include <cairn/checkpoint.hpp>
#include <cairn/state.hpp>

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
  std::vector<float> weight(rows * 512), expected(rows * 512);
  std::iota(weight.begin(), weight.end(), static_cast<float>(first * 512));
  cairn::State state;  // this rank's part of every tensor: where it begins, and its shape; then its memory
  state.add("model", "wte.weight", {1000, 512}, {{first, 0}, {rows, 512}}, weight);
  bool equal = false;
  try {
    cairn::Options options;
    options.waiting.then = cairn::OnSilence::kEndProcess;  // when a rank is lost
    cairn::Checkpointer checkpointer(MPI_COMM_WORLD, "run1", options);
    cairn::Report loaded;  // has step 0 until a step is loaded
    try {
      loaded = checkpointer.load_latest(state.targets());
    } catch (const cairn::Error& error) {  // start anew only if there is no checkpoint
      if (error.missing() != cairn::Missing::kAnyStep) throw;
    }
    for (float& value : weight) value += 100;  // the training
    const auto saved = checkpointer.save(loaded.step + 100, state.sources());
    std::iota(expected.begin(), expected.end(), static_cast<float>(first * 512 + saved.step));
    equal = weight == expected;
    MPI_Allreduce(MPI_IN_PLACE, &equal, 1, MPI_CXX_BOOL, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0) std::printf("loaded %ju, saved %ju, equal: %s\n", loaded.step, saved.step, equal ? "yes" : "NO");
  } catch (const cairn::Error& error) {  // the same on all ranks
    if (rank == 0) std::fprintf(stderr, "%s\n", error.what());
  }
  MPI_Finalize();
  return equal ? 0 : 1;
}
