// Prints what MPI itself sees of the nodes of a job: one line per rank with its node's name and the number of ranks
// that share memory with it. Rank 0 prints, in order.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <vector>

namespace {

struct Seen {
  std::array<char, 64> node{};
  int ranks_on_node = 0;
};

void look_and_print() {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  Seen mine;
  MPI_Comm_size(node, &mine.ranks_on_node);
  MPI_Comm_free(&node);
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  std::snprintf(mine.node.data(), mine.node.size(), "%.*s", length, name.data());
  std::vector<Seen> all(static_cast<std::size_t>(size));
  MPI_Gather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::printf("rank %zu of %d: node %s, %d ranks share its memory\n", r, size, all[r].node.data(),
                all[r].ranks_on_node);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  look_and_print();
  MPI_Finalize();
}
