// Are the replicas of a box the same? What a save compares before it writes a mixture of them.
//
// Nobody has two replicas in its memory, so hashes meet: each rank makes one of every box that others hold as well (of
// a sample, or of all bytes: plan/samples.hpp), and one of all boxes that the same ranks hold. These alone travel with
// every save, 16 bytes for each set of ranks that this rank is in, to the rank that the set's own hash chooses. Only
// where they differ do those of the boxes travel, to the homes of their tensors, and then what names the first
// difference. No rank has more to do than it holds boxes, or than the ranks are that hold one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "io/device_copies.hpp"
#include "plan/coverage.hpp"
#include "plan/pieces.hpp"
#include "plan/samples.hpp"

namespace cairn::checkpoint {

/// A box of this rank that other ranks hold as well (plan::Replica), and of what.
struct HeldReplica {
  const plan::MemoryBox* box = nullptr;
  const Source* source = nullptr;
  std::uint64_t tensor = 0;  ///< its number, the same on all ranks
  std::uint64_t holders = 0;
  bool is_mixed = false;
};

/// Rank-local: appends those of `boxes`, whose tensors are numbers in `sources`. All three must outlive what is added.
void add_replicas(std::span<const plan::Replica> replicas, std::span<const plan::MemoryBox> boxes,
                  std::span<const Source> sources, std::vector<HeldReplica>& held);

struct ReplicaComparison {
  std::span<const HeldReplica> replicas;  ///< in an order that is the same on all ranks that hold some
  std::uint64_t save = 0;                 ///< another number for each save, and so other places; the same on all ranks
  const Checks& checks;
  plan::SampleRule rule = {};          ///< of agree_on_sample()
  io::DeviceCopies* device = nullptr;  ///< where this rank has boxes in device memory
};

/// Collective. How much of each replica is compared with ReplicaCheck::kSample.
plan::SampleRule agree_on_sample(comm::Communicator& communicator, std::span<const HeldReplica> replicas);

/// Collective. Returns a warning, the same on all ranks, or "". Throws comm::AgreedError(kState) where
/// Checks::replicas_differ says so. Requires: Checks::replicas is not kOff.
std::string compare_replicas(comm::Communicator& communicator, const ReplicaComparison& what);

}  // namespace cairn::checkpoint
