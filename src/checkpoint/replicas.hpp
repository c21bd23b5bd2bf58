// Compares the replicas of a box before a save can write a mixture of them.
//
// No rank has two replicas in memory, so the ranks compare hashes. Each rank hashes every box that other ranks also
// hold (a sample, or all bytes: plan/samples.hpp), and combines the hashes of all boxes with the same holders. A
// save sends only these combined hashes, 16 bytes for each set of holders with this rank, to a rank chosen by the set's
// own hash. Only if those differ are the hashes of the boxes sent, to the homes of their tensors, and then the data
// that shows the first difference. The work of a rank is bounded by its boxes and by the holders of a box.
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

/// A box of this rank that other ranks also hold (plan::Replica), and its source.
struct HeldReplica {
  const plan::MemoryBox* box = nullptr;
  const Source* source = nullptr;
  std::uint64_t tensor = 0;  ///< number of the tensor, the same on all ranks
  std::uint64_t holders = 0;
  bool is_mixed = false;
};

/// Rank-local: appends `replicas`. `MemoryBox::tensor` is a number in `sources`; `held` points into boxes and sources.
void add_replicas(std::span<const plan::Replica> replicas, std::span<const plan::MemoryBox> boxes,
                  std::span<const Source> sources, std::vector<HeldReplica>& held);

struct ReplicaComparison {
  std::span<const HeldReplica> replicas;  ///< ranks have the boxes that they share in the same order
  std::uint64_t save = 0;                 ///< seed of the sample, different in each save; the same on all ranks
  const Checks& checks;
  plan::SampleRule rule = {};          ///< result of agree_on_sample()
  io::DeviceCopies* device = nullptr;  ///< needed if this rank has boxes in device memory
};

/// Collective: the size of the samples for ReplicaCheck::kSample.
plan::SampleRule agree_on_sample(comm::Communicator& communicator, std::span<const HeldReplica> replicas);

/// Collective. Returns a warning, the same on all ranks, or "". Throws comm::AgreedError(kState) if
/// Checks::replicas_differ requires it. Requires: Checks::replicas is not kOff.
std::string compare_replicas(comm::Communicator& communicator, const ReplicaComparison& what);

}  // namespace cairn::checkpoint
