// What the worlds of `cairn plan` are made of: messages between ranks that one process plays, what a rank moves, and its
// windows.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cli/arguments.hpp"
#include "comm/messages.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"
#include "shard/shard_map.hpp"

namespace cairn::cli {

// Messages between the ranks of a world that one process plays: kept once however often they are sent, and counted.

/// What a rank sent to and received from others; messages to itself do not count.
struct MessageVolume {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

/// One exchange of messages among all ranks.
class MessageLog {
 public:
  explicit MessageLog(int ranks);

  /// Messages to other ranks than these are counted, but not kept.
  void keep_only(const std::vector<int>& ranks);
  /// `outgoing`: one message per rank. Ranks post in ascending order.
  void post(int from, const comm::Messages& outgoing);
  /// What rank `to` gets: one message per rank.
  [[nodiscard]] comm::Messages deliver(int to) const;
  [[nodiscard]] const MessageVolume& volume_of(int rank) const { return volumes_[static_cast<std::size_t>(rank)]; }

 private:
  struct Letter {
    std::uint32_t from = 0;
    std::uint32_t content = 0;
  };
  std::uint32_t number_of(const base::Bytes& content);

  std::deque<base::Bytes> chunks_;  ///< what contents_ are views of: millions of small allocations would take longer
  std::vector<std::string_view> contents_;
  std::unordered_map<std::string_view, std::uint32_t> number_of_content_;
  std::vector<std::vector<Letter>> boxes_;  ///< by receiver
  std::vector<bool> is_kept_;
  std::vector<MessageVolume> volumes_;
};

/// What is planned. Everything must outlive the world.
struct PlanInput {
  const DemoState& state;
  const shard::ShardMap& map;
  const Options& options;
};

/// A rank's shards as it would hand them to save; their memory is nowhere and never touched.
std::vector<Source> sources_of(const PlanInput& input, std::span<const shard::HeldTensor> held);

/// Bytes of tensor data, and what they travel in, of one rank.
struct RankTraffic {
  std::uint64_t held_bytes = 0;   ///< replicas included
  std::uint64_t sent_bytes = 0;   ///< to extents of other ranks
  std::uint64_t local_bytes = 0;  ///< to its own extents
  std::uint64_t received_bytes = 0;
  std::uint64_t extent_bytes = 0;  ///< headers included
  std::uint64_t extents = 0;
  std::uint64_t transfers = 0;  ///< of its memory
  std::uint64_t arriving = 0;   ///< transfers to its extents
  std::uint64_t peers = 0;      ///< other ranks that it sends to
};

/// Of all ranks alike.
std::uint64_t window_bytes_of(const plan::ExtentMap& extents, const Options& options);
/// Windows of a rank.
std::vector<plan::Window> windows_of(int rank, const plan::ExtentMap& extents, const Options& options);

/// Transfer records of a rank, to the aggregators of the extents.
comm::Messages records_of(const std::vector<plan::Runs>& transfers, int ranks);

}  // namespace cairn::cli
