// Moves more than 2 GiB: in one file, from one rank to another, in one collective; and 1 GiB in one message.
// MPI counts in int, and so do parts of ROMIO, Linux and io_uring. Takes over 4 GiB of memory and 2 GiB of disk.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/mpi.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kBytes = 2 * kGiB + kGiB / 8 + 5;

/// Word number `i`; bytes beyond the last whole word are zeros.
std::uint64_t word_of(std::uint64_t i) { return (i + 1) * 0x9E3779B97F4A7C15ULL; }

void fill(std::vector<std::byte>& bytes) {
  for (std::uint64_t i = 0; i < bytes.size() / 8; ++i) {
    const std::uint64_t word = word_of(i);
    std::memcpy(bytes.data() + 8 * i, &word, 8);
  }
}

std::uint64_t right_words(const std::vector<std::byte>& bytes) {
  std::uint64_t right = 0;
  for (std::uint64_t i = 0; i < bytes.size() / 8; ++i) {
    const std::uint64_t word = word_of(i);
    right += std::memcmp(bytes.data() + 8 * i, &word, 8) == 0 ? 1 : 0;
  }
  return right;
}

class Large : public testing::TestWithParam<const char*> {};

/// The last rank holds the whole tensor, and the first rank loads it.
TEST_P(Large, OneTensorOfOneRankInOneFile) {
  const World world;
  const SharedTempDir root;
  Options options;
  options.engine.name = GetParam();
  const auto shard_on = [&](int holder) {
    Shard shard{"model", "large", DType::kU8, {kBytes}, {}};
    if (world.rank == holder) shard.boxes = {{{0}, {kBytes}}};
    return shard;
  };
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  std::vector<std::byte> memory;
  const int last = world.ranks - 1;
  if (world.rank == last) {
    memory.resize(kBytes);
    fill(memory);
  }
  Source source;
  static_cast<Shard&>(source) = shard_on(last);
  source.data = memory.data();
  const Report report = checkpointer.save(1, std::vector<Source>{source});
  EXPECT_EQ(report.files, 1U);
  EXPECT_EQ(report.bytes, kBytes);
  std::vector<std::byte>().swap(memory);
  if (world.rank == 0) memory.resize(kBytes);
  Target target;
  static_cast<Shard&>(target) = shard_on(0);
  target.data = memory.data();
  checkpointer.load(1, std::vector<Target>{target});
  if (world.rank == 0) {
    EXPECT_EQ(right_words(memory), kBytes / 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Large, testing::Values("direct", "mpiio", "posix"));

TEST(LargeMessage, ABroadcastBeyondInt) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  std::vector<std::byte> bytes;
  if (communicator->rank() == 0) {
    bytes.resize(kBytes);
    fill(bytes);
  }
  communicator->share(bytes, 0);
  ASSERT_EQ(bytes.size(), kBytes);
  EXPECT_EQ(right_words(bytes), kBytes / 8);
}

TEST(LargeMessage, TheLargestOne) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  ASSERT_GE(communicator->size(), 2);
  std::vector<std::byte> bytes;
  if (communicator->rank() < 2) bytes.resize(comm::kMaxMessageBytes);
  if (communicator->rank() == 1) {
    fill(bytes);
    communicator->send(bytes, 0, 3)->wait();
  } else if (communicator->rank() == 0) {
    communicator->receive(bytes, 1, 3)->wait();
    EXPECT_EQ(right_words(bytes), bytes.size() / 8);
  }
  communicator->barrier();
}

}  // namespace
}  // namespace cairn::test
