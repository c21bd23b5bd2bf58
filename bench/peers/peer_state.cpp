// Builds a rank's pieces, and finds the pieces that a lower rank also holds.
#include "peer_state.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <utility>

#include "cairn/dtype.hpp"
#include "shard/box_math.hpp"
#include "shard/layout.hpp"

namespace cairn::peers {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

using BoxKey = std::pair<std::uint32_t, std::vector<std::uint64_t>>;  // tensor and offset

std::set<BoxKey> boxes_below(const shard::ShardMap& map, int rank) {
  std::set<BoxKey> out;
  for (int lower = 0; lower < rank; ++lower) {
    for (const shard::HeldTensor& held : map.held_by(lower)) {
      for (const Box& box : held.boxes) out.emplace(held.tensor, box.offset);
    }
  }
  return out;
}

}  // namespace

PeerState::PeerState(const std::filesystem::path& config, const std::string& layout, int rank)
    : state_(bench::demo_state_of_config(text_of(config), std::nullopt)) {
  const shard::ShardMap map(shard::Layout::from_text(layout), state_.model, state_.sections, state_.tensors);
  held_ = std::make_unique<bench::HeldState>(state_, map, rank);
  const std::set<BoxKey> below = boxes_below(map, rank);
  for (std::size_t h = 0; h < held_->held().size(); ++h) {
    const shard::HeldTensor& held = held_->held()[h];
    std::byte* at = held_->memory_of(h).data();
    for (const Box& box : held.boxes) {
      pieces_.push_back({held.tensor, box, at, !below.contains({held.tensor, box.offset})});
      at += shard::elements_of(box) * bits_of(state_.tensors[held.tensor].dtype) / 8;
    }
  }
}

void PeerState::overwrite() {
  for (std::size_t h = 0; h < held_->held().size(); ++h) {
    const std::span<std::byte> memory = held_->memory_of(h);
    std::memset(memory.data(), 0xa5, memory.size());
  }
}

}  // namespace cairn::peers
