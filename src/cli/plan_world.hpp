// Every rank of a layout plans a save, in one process and without a byte of tensor data.
//
// The steps are those of a real save (planning/*_steps.hpp, plan/transfers.hpp), each run for each rank with the
// messages that the ranks would send each other. What is equal on all ranks - catalog, split into files, sizes - is
// made once here; plan_replay.hpp runs one rank from beginning to end and measures it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cli/arguments.hpp"
#include "plan/extents.hpp"
#include "plan/hf_layout.hpp"
#include "plan/transfers.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"
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

class PlanWorld {
 public:
  /// Plans for all ranks. Throws what a save would throw.
  explicit PlanWorld(const PlanInput& input);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const PlanInput& input() const { return input_; }
  [[nodiscard]] const plan::HfLayout& files() const { return *files_; }
  [[nodiscard]] const plan::FileLayout& layout() const { return layout_; }
  [[nodiscard]] const plan::ExtentMap& extents() const { return *extents_; }
  /// Of the exchange: the most windows that a rank has.
  [[nodiscard]] std::size_t rounds() const { return rounds_; }
  [[nodiscard]] const std::vector<RankTraffic>& traffic() const { return traffic_; }

  /// What travels between the steps: to each rank its own, or the same to all.
  struct Messages {
    explicit Messages(int ranks)
        : descriptions(ranks), spread(ranks), claims(ranks), provisions(ranks), records(ranks) {}
    MessageLog descriptions;
    comm::Messages samples;  ///< by sender; to all, like the next two
    MessageLog spread;
    comm::Messages stretches;
    comm::Messages header_shares;
    comm::Messages index_shares;  ///< by sender; to rank 0
    MessageLog claims;
    MessageLog provisions;
    MessageLog records;  ///< kept after keep_records
  };
  [[nodiscard]] const Messages& messages() const { return messages_; }

  /// Works out again the transfer records that these ranks receive: those of all ranks would be many.
  void keep_records(const std::vector<int>& ranks);

 private:
  void exchange_catalog();
  void lay_out();
  void exchange_claims();
  void count_extents();
  struct Described {
    std::vector<Source> sources;
    std::vector<plan::MemoryBox> boxes;
    std::vector<std::uint32_t> tensor_of_shard;
  };
  [[nodiscard]] Described describe(int rank) const;
  [[nodiscard]] std::vector<plan::Runs> transfers_of(int rank) const;
  void count_transfers(int rank, const std::vector<plan::Runs>& transfers);
  void check_sums() const;

  PlanInput input_;
  int ranks_;
  Messages messages_;
  std::unique_ptr<plan::HfLayout> files_;
  plan::FileLayout layout_;
  std::unique_ptr<plan::ExtentMap> extents_;
  std::vector<std::uint32_t> number_of_tensor_;  ///< catalog number by tensor of the state
  std::vector<RankTraffic> traffic_;
  std::size_t rounds_ = 0;
};

/// Of all ranks alike.
std::uint64_t window_bytes_of(const plan::ExtentMap& extents, const Options& options);
/// Windows of a rank.
std::vector<plan::Window> windows_of(int rank, const plan::ExtentMap& extents, const Options& options);

/// The bytes of all files assigned to all ranks, section by section, as a save does on a file system that wants no
/// fewer writers.
plan::ExtentMap assign_to_all(const plan::HfLayout& files, const plan::FileLayout& layout, int ranks,
                              std::uint64_t block_bytes);

/// Transfer records of a rank, to the aggregators of the extents.
comm::Messages records_of(const std::vector<plan::Runs>& transfers, int ranks);

}  // namespace cairn::cli
