// A world of `cairn plan`: every rank of a layout plans a save or a load, in one process without tensor data.
//
// The common part of the worlds of saves (plan_save.hpp) and of loads (plan_load.hpp): the messages between simulated
// ranks, the traffic of each rank between its memory and the extents, and the replay, in which one rank plans again
// from the beginning, alone, while its cost is measured.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/demo_state.hpp"
#include "bench/shards_of.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/messages.hpp"
#include "io/exchange.hpp"
#include "io/exchange_messages.hpp"
#include "plan/extents.hpp"
#include "plan/hf_layout.hpp"
#include "plan/runs.hpp"
#include "shard/shard_map.hpp"
#include "simulate/heap_meter.hpp"

namespace cairn::simulate {

// Messages between simulated ranks: equal messages are kept once, and all are counted.

/// The bytes that a rank sent to and received from others; messages to itself do not count.
struct MessageVolume {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

/// One exchange of messages among all ranks.
class MessageLog {
 public:
  explicit MessageLog(int ranks);

  /// Messages to ranks other than these are counted but not kept.
  void keep_only(const std::vector<int>& ranks);
  /// `outgoing`: one message per rank. Ranks post in ascending order.
  void post(int from, const comm::Messages& outgoing);
  /// The messages to rank `to`: one per rank.
  [[nodiscard]] comm::Messages deliver(int to) const;
  /// By rank.
  [[nodiscard]] const std::vector<MessageVolume>& volumes() const { return volumes_; }

 private:
  struct Letter {
    std::uint32_t from = 0;
    std::uint32_t content = 0;
  };
  std::uint32_t number_of(const base::Bytes& content);

  std::deque<base::Bytes> chunks_;  ///< memory of contents_: millions of small allocations would take longer
  std::vector<std::string_view> contents_;
  std::unordered_map<std::string_view, std::uint32_t> number_of_content_;
  std::vector<std::vector<Letter>> boxes_;  ///< by receiver
  std::vector<bool> is_kept_;
  std::vector<MessageVolume> volumes_;
};

/// Volumes by rank if each rank sends its message to all ranks; it counts once as sent, however many ranks receive it.
std::vector<MessageVolume> volumes_of_gathered(const comm::Messages& messages);
/// Volumes by rank if each rank sends its message to rank 0.
std::vector<MessageVolume> volumes_to_root(const comm::Messages& messages);

inline std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/// The input of a world. The objects that it refers to must outlive the world.
struct PlanInput {
  const bench::DemoState& state;
  const shard::ShardMap& map;  ///< shards of the ranks that plan
  const Options& options;
  int ranks_per_node = 0;  ///< ranks 0 to ranks_per_node - 1 are on the first node, and so on; 0: not known
};

/// A rank's shards as it would pass them to save or load; their memory does not exist and is never touched.
template <class SourceOrTarget>
std::vector<SourceOrTarget> shards_of(const PlanInput& input, std::span<const shard::HeldTensor> held) {
  static std::byte nowhere{};
  std::vector<SourceOrTarget> shards;
  shards.reserve(held.size());
  for (const shard::HeldTensor& tensor : held) {
    shards.push_back(bench::shard_of<SourceOrTarget>(input.state, tensor));
    shards.back().data = &nowhere;
  }
  return shards;
}

/// Tensor data that one rank moves: from memory to extents in a save, from extents to memory in a load.
struct RankTraffic {
  std::uint64_t memory_bytes = 0;  ///< bytes of its boxes, replicas included
  std::uint64_t away_bytes = 0;    ///< between its memory and extents of other ranks
  std::uint64_t local_bytes = 0;   ///< between its memory and its own extents
  std::uint64_t served_bytes = 0;  ///< between its extents and the memory of other ranks
  std::uint64_t extent_bytes = 0;
  std::uint64_t extents = 0;
  std::uint64_t windows = 0;
  std::uint64_t transfers = 0;  ///< transfers of its memory
  std::uint64_t arriving = 0;   ///< transfers of its extents
  std::uint64_t peers = 0;      ///< number of other ranks whose extents its transfers use
  std::uint64_t far_bytes = 0;  ///< those of away_bytes that go between nodes; 0 without PlanInput::ranks_per_node
};

/// A figure of the traffic, with its name in JSON.
struct TrafficFigure {
  std::string_view name;
  bool is_bytes = true;
  std::uint64_t (*value)(const RankTraffic&) = nullptr;
};

/// The volume of one kind of messages between ranks that plan, by rank.
struct MetadataVolume {
  std::string_view name;
  std::vector<MessageVolume> volumes;
};

struct StepCost {
  std::string_view name;
  double seconds = 0;            ///< processor seconds
  std::uint64_t peak_bytes = 0;  ///< peak of the heap, including data of earlier steps and received messages
};

struct RankCost {
  int rank = 0;
  std::vector<StepCost> steps;   ///< in order
  double seconds = 0;            ///< seconds of all steps
  std::uint64_t peak_bytes = 0;  ///< the largest of all steps
  std::uint64_t kept_bytes = 0;  ///< bytes of the finished plan
};

class PlanWorld {
 public:
  virtual ~PlanWorld() = default;
  PlanWorld(const PlanWorld&) = delete;
  PlanWorld& operator=(const PlanWorld&) = delete;

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const PlanInput& input() const { return input_; }
  /// The files that are written or read.
  [[nodiscard]] const plan::HfLayout& files() const { return *files_; }
  [[nodiscard]] const plan::FileLayout& layout() const { return layout_; }
  [[nodiscard]] const plan::ExtentMap& extents() const { return *extents_; }
  /// Rounds of the exchange: the largest number of windows of any rank.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  [[nodiscard]] const std::vector<RankTraffic>& traffic() const { return traffic_; }
  /// Transfer records, after keep_records().
  [[nodiscard]] const MessageLog& records() const { return records_; }

  /// Computes again and keeps the transfer records that these ranks receive; all ranks' records need much memory.
  void keep_records(const std::vector<int>& ranks);

  [[nodiscard]] virtual std::span<const TrafficFigure> traffic_figures() const = 0;
  [[nodiscard]] virtual std::vector<MetadataVolume> metadata() const = 0;
  /// Ranks with the most work in a step, apart from those with the most transfers.
  [[nodiscard]] virtual std::vector<int> busiest_ranks() const = 0;
  /// Requires: the world keeps the rank's records. Throws Error(kInternal) if its plan for the rank differs.
  [[nodiscard]] virtual RankCost replay(int rank) const = 0;

 protected:
  explicit PlanWorld(const PlanInput& input);

  /// The transfers between a rank's memory and the extents. Requires: the extents are set.
  [[nodiscard]] virtual std::vector<plan::Runs> transfers_of(int rank) const = 0;

  /// Counts extents, windows and transfers of all ranks.
  void count_traffic();

  /// Calls `work` for each rank in ascending order, and reports the share of the state's bytes that has been planned in
  /// `phase`, a literal (checkpoint/progress.hpp).
  void for_each_rank(std::string_view phase, const std::function<void(int)>& work) const;

  PlanInput input_;
  int ranks_;
  std::unique_ptr<plan::HfLayout> files_;
  plan::FileLayout layout_;
  std::unique_ptr<plan::ExtentMap> extents_;
  std::vector<RankTraffic> traffic_;

 private:
  void count_transfers(int rank, const std::vector<plan::Runs>& transfers);

  std::uint64_t rounds_ = 0;
  MessageLog records_;
};

/// The first of the ranks 0 to `ranks` - 1 with the largest value.
int rank_with_most(int ranks, const std::function<std::uint64_t(int)>& value);

/// The rank that received the most.
int most_received(const std::vector<MessageVolume>& volumes);

/// Assigns the bytes of ranges of files to all ranks, section by section (plan::Assignment), as on a file system that
/// does not limit the aggregators.
plan::ExtentMap assign_to_all(std::vector<plan::FileRange> ranges, std::vector<std::uint32_t> group_of_file, int ranks,
                              std::uint64_t block_bytes);

/// Transfer records of a rank: a message for each rank, empty if no transfer uses that rank's extents.
comm::Messages records_of(const std::vector<plan::Runs>& transfers, int ranks);

/// The planning of one rank. Derived classes run the steps of a save or a load, which end in the exchange.
class Replay {
 public:
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 protected:
  Replay(const PlanWorld& world, int rank, std::span<const std::string_view> steps);
  ~Replay() = default;

  [[nodiscard]] int rank() const { return cost_.rank; }
  /// Runs `work`, and adds its time and memory to a step.
  void measure(std::string_view step, const std::function<void()>& work);
  /// Step "exchange": the work of io::Exchange's constructor, with the other ranks' records and this rank's `extents`.
  void plan_exchange(std::vector<plan::Runs> transfers, const plan::ExtentMap& extents);
  /// Call after the trainer's data was freed. Throws Error(kInternal) if the world has a different plan for the rank.
  RankCost finish();

 private:
  void check() const;

  const PlanWorld& world_;
  RankCost cost_;
  HeapMeter heap_;  ///< declared before the members whose memory it counts
  std::uint64_t transfers_ = 0;
  std::uint64_t arriving_ = 0;
  io::Schedule memory_side_;
  io::Schedule file_side_;

 protected:
  comm::Messages step_messages_;  ///< to or from this rank
};

}  // namespace cairn::simulate
