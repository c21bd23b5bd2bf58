// Checkpointers on part of the ranks, several at once, and replicas that differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/verify.hpp"
#include "comm/mpi.hpp"
#include "expect_error.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

Options small_options() {
  Options options = options_for_small_state();
  options.waiting.limit_s = 300;
  return options;
}

/// The even ranks of the world, or the odd ranks, in reverse order.
class Half {
 public:
  Half() {
    const World world;
    number = world.rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, number, -world.rank, &communicator);
    ranks = World(communicator);
  }
  ~Half() { MPI_Comm_free(&communicator); }
  Half(const Half&) = delete;
  Half& operator=(const Half&) = delete;

  int number = 0;
  MPI_Comm communicator = MPI_COMM_NULL;
  World ranks;
};

/// Collective over the half: saves three steps, whose values follow from `version`, and loads one in other partitions.
void save_and_load(const Half& half, const std::filesystem::path& root, int version) {
  Checkpointer checkpointer(half.communicator, root, small_options());
  RankState state(small_state(), Cut::kMixed, half.ranks.rank, half.ranks.ranks);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    state.fill(version + static_cast<int>(step));
    checkpointer.save(step, state.sources());
  }
  EXPECT_EQ(checkpointer.latest(), 3U);
  for (const Cut cut : {Cut::kColumns, Cut::kOneRank}) {
    RankState loaded(small_state(), cut, half.ranks.rank, half.ranks.ranks);
    checkpointer.load(2, loaded.targets());
    EXPECT_EQ(loaded.matching_bytes(version + 2), loaded.bytes());
  }
}

TEST(Communicators, HalfOfTheRanksSave) {
  const SharedTempDir root;
  const Half half;
  if (half.number == 0) save_and_load(half, root / "half", 10);
  MPI_Barrier(MPI_COMM_WORLD);  // the other ranks have nothing else to do
  EXPECT_TRUE(std::filesystem::exists(root / "half" / "checkpoint-3" / "cairn.json"));
}

TEST(Communicators, TwoHalvesSaveAtOnce) {
  const World world;
  const SharedTempDir root;
  {
    const Half half;
    save_and_load(half, root / std::to_string(half.number), 10 * half.number);
  }
  // All ranks together load the checkpoints of each half.
  for (const int number : {0, 1}) {
    Checkpointer whole(MPI_COMM_WORLD, root / std::to_string(number), small_options());
    RankState loaded(small_state(), Cut::kRows, world.rank, world.ranks);
    whole.load(3, loaded.targets());
    EXPECT_EQ(loaded.matching_bytes(10 * number + 3), loaded.bytes());
  }
}

TEST(Communicators, TwoCheckpointersOnTwoRoots) {
  const World world;
  const SharedTempDir root;
  Checkpointer first(MPI_COMM_WORLD, root / "first", small_options());
  Checkpointer second(MPI_COMM_WORLD, root / "second", small_options());
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    for (Checkpointer* checkpointer : {&first, &second}) {
      state.fill(static_cast<int>(step) + (checkpointer == &second ? 10 : 0));
      checkpointer->save(step, state.sources());
    }
  }
  first.load(2, state.targets());
  EXPECT_EQ(state.matching_bytes(2), state.bytes());
  second.load(2, state.targets());
  EXPECT_EQ(state.matching_bytes(12), state.bytes());
}

TEST(Communicators, OneOfTwoCheckpointersOnOneRootSaves) {
  const World world;
  const SharedTempDir root;
  Options options = small_options();
  options.lease.seconds = 1;
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  auto first = std::make_unique<Checkpointer>(MPI_COMM_WORLD, root.path(), options);
  Checkpointer second(MPI_COMM_WORLD, root.path(), options);
  first->save(1, state.sources());
  expect_error(ErrorKind::kState, [&] { second.save(2, state.sources()); }, {"has another saver, in this process"});
  // A Checkpointer that does not save does not block the others, and can load.
  RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
  second.load(1, loaded.targets());
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  first->save(2, state.sources());
  first->load(1, loaded.targets());  // going back to an earlier step does not release the root
  expect_error(ErrorKind::kState, [&] { second.save(2, state.sources()); }, {"has another saver, in this process"});
  first->save(2, state.sources());
  first.reset();
  second.save(3, state.sources());
  EXPECT_EQ(second.latest(), 3U);
}

/// Every byte comes from one of the ranks, and the checksums match the written bytes.
TEST(Communicators, ReplicasThatDifferAreNotComparedButWhole) {
  const World world;
  const SharedTempDir root;
  Options options = small_options();
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  const auto tensors = small_state();
  RankState state(tensors, Cut::kReplicated, world.rank, world.ranks);
  state.fill(world.rank);
  const Report saved = checkpointer.save(1, state.sources());
  RankState loaded(tensors, Cut::kReplicated, world.rank, world.ranks);
  const auto targets = loaded.targets();
  checkpointer.load(1, targets);
  std::uint64_t compared = 0;
  std::vector<std::uint64_t> of_rank(static_cast<std::size_t>(world.ranks), 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::vector<std::byte>> versions;
    for (int rank = 0; rank < world.ranks; ++rank) versions.push_back(whole_content(tensors[i], i, rank));
    const auto* found = static_cast<const std::byte*>(targets[i].data);
    for (std::size_t at = 0; at < versions[0].size(); ++at) {
      bool is_of_a_rank = false;
      for (std::size_t rank = 0; rank < versions.size(); ++rank) {
        if (versions[rank][at] != found[at]) continue;
        is_of_a_rank = true;
        ++of_rank[rank];
      }
      ASSERT_TRUE(is_of_a_rank) << tensors[i].name << " byte " << at;
      ++compared;
    }
  }
  EXPECT_EQ(compared, loaded.bytes());
  // The replicas share the writing, so the content comes from several ranks.
  if (world.ranks > 1) {
    EXPECT_LT(*std::max_element(of_rank.begin(), of_rank.end()), compared);
  }
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const auto verdict = checkpoint::verify(*communicator, saved.directory);
  EXPECT_TRUE(verdict.faults.empty());
  EXPECT_GT(verdict.bytes, 0U);
}

}  // namespace
}  // namespace cairn::test
