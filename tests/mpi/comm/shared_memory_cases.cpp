// Memory shared by the ranks of a node; the cases run on simulated ranks and on MPI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "cairn/error.hpp"
#include "comm/shared_memory.hpp"
#include "comm_cases.hpp"
#include "memory_files.hpp"

namespace cairn::test {
namespace {

std::byte mark(int writer, int owner, int round) {
  return static_cast<std::byte>(1 + writer * 31 + owner * 7 + round * 101);
}

std::uint64_t bytes_of(int rank) { return rank == 1 ? 0 : 1000 + 5000 * static_cast<std::uint64_t>(rank); }

void is_seen_by_all_it_reaches(comm::Communicator& communicator) {
  const int rank = communicator.rank();
  comm::SharedMemory memory(communicator, bytes_of(rank));
  EXPECT_TRUE(memory.problem().empty()) << memory.problem();
  EXPECT_TRUE(memory.reaches(rank));
  EXPECT_EQ(memory.of(rank).size(), bytes_of(rank));
  int compared = 0;
  for (int round = 0; round < 3; ++round) {
    for (int owner = 0; owner < communicator.size(); ++owner) {  // each rank marks a different byte in every part
      if (!memory.reaches(owner) || memory.of(owner).empty()) continue;
      EXPECT_EQ(memory.of(owner).size(), bytes_of(owner));
      memory.of(owner)[static_cast<std::size_t>(rank)] = mark(rank, owner, round);
    }
    memory.barrier();
    for (int writer = 0; writer < communicator.size() && bytes_of(rank) > 0; ++writer) {
      if (!memory.reaches(writer)) continue;
      EXPECT_EQ(memory.of(rank)[static_cast<std::size_t>(writer)], mark(writer, rank, round));
      ++compared;
    }
    memory.barrier();
  }
  EXPECT_TRUE(bytes_of(rank) == 0 || compared >= 3);
  const auto node = communicator.node();
  int reached = 0;
  for (int other = 0; other < communicator.size(); ++other) reached += memory.reaches(other) ? 1 : 0;
  EXPECT_EQ(reached, node->size());
}

void gets_its_pages_when_told(comm::Communicator& communicator) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  comm::SharedMemory memory(communicator, 5 * kMiB, comm::SharedMemory::Reach::kNode, 0);
  const std::span<std::byte> own = memory.of(communicator.rank());
  // One more page exists from the beginning. Simulated ranks see each other's files, so all do the same between
  // barriers.
  const auto expect_pages = [&](std::uint64_t least, std::uint64_t most) {
    memory.barrier();
    const auto found = pages_of_memory_files(5 * kMiB + 4096);
    EXPECT_FALSE(found.empty());
    for (const std::uint64_t pages : found) {
      EXPECT_GE(pages, least + 1);
      EXPECT_LE(pages, most + 1);
    }
    memory.barrier();
  };
  expect_pages(0, 0);
  memory.make(kMiB);
  own[7] = std::byte{9};
  expect_pages(256, 512);  // a huge page holds 2 MiB
  memory.make(3 * kMiB);
  expect_pages(3 * 256, 4 * 256);
  memory.make(2 * kMiB);
  memory.make(comm::SharedMemory::kAll);
  expect_pages(5 * 256, 5 * 256);
  EXPECT_EQ(own[7], std::byte{9});
  EXPECT_EQ(std::count(own.begin(), own.end(), std::byte{0}), static_cast<std::ptrdiff_t>(5 * kMiB - 1));
  for (int other = 0; other < communicator.size(); ++other) {
    if (!memory.reaches(other)) continue;
    EXPECT_EQ(memory.of(other)[7], std::byte{9});
  }
  memory.barrier();
}

void can_be_a_ranks_own(comm::Communicator& communicator) {
  comm::SharedMemory memory(communicator, 4096, comm::SharedMemory::Reach::kOwn);
  for (int other = 0; other < communicator.size(); ++other) {
    EXPECT_EQ(memory.reaches(other), other == communicator.rank());
    EXPECT_EQ(memory.of(other).size(), other == communicator.rank() ? 4096U : 0U);
  }
  memory.barrier();
}

void too_much_shared_memory_is_an_error_of_all(comm::Communicator& communicator) {
  const std::uint64_t bytes = communicator.rank() + 1 == communicator.size() ? 1ULL << 63 : 4096;  // beyond any file
  std::string text;
  try {
    const comm::SharedMemory memory(communicator, bytes);
    ADD_FAILURE() << "2^63 bytes were given";
  } catch (const Error& error) {
    text = error.what();
    EXPECT_NE(text.find("shared memory"), std::string::npos) << text;
  }
  for (const base::Bytes& other : communicator.all_gather(base::as_bytes(text))) {
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.data()), other.size()), text);
  }
}

}  // namespace

std::vector<CommCase> shared_memory_cases() {
  return {{"SharedMemoryIsSeenByAllItReaches", is_seen_by_all_it_reaches},
          {"SharedMemoryGetsItsPagesWhenTold", gets_its_pages_when_told},
          {"SharedMemoryCanBeARanksOwn", can_be_a_ranks_own},
          {"TooMuchSharedMemoryIsAnErrorOfAll", too_much_shared_memory_is_an_error_of_all}};
}

}  // namespace cairn::test
