// A rank's part of the made-up state as sources or targets.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/demo_state.hpp"
#include "cairn/checkpoint.hpp"
#include "cairn/tensor.hpp"

namespace cairn::bench {

/// A source or target for a rank's part of a tensor; `data` is not set.
template <class SourceOrTarget>
SourceOrTarget shard_of(const DemoState& state, const shard::HeldTensor& held) {
  const Tensor& spec = state.tensors[held.tensor];
  SourceOrTarget shard;
  shard.section = state.sections[held.tensor];
  shard.name = spec.name;
  shard.dtype = spec.dtype;
  shard.shape = spec.shape;
  shard.boxes = held.boxes;
  return shard;
}

/// Sources or targets for all parts that a rank holds, in the memory of `held`.
template <class SourceOrTarget>
std::vector<SourceOrTarget> shards_of(const DemoState& state, HeldState& held) {
  std::vector<SourceOrTarget> shards;
  for (std::size_t h = 0; h < held.held().size(); ++h) {
    shards.push_back(shard_of<SourceOrTarget>(state, held.held()[h]));
    shards.back().data = held.memory_of(h).data();
  }
  return shards;
}

}  // namespace cairn::bench
