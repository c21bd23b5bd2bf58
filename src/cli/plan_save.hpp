// Every rank of a layout plans a save, in one process and without a byte of tensor data.
//
// The steps are those of a real save (planning/*_steps.hpp, plan/transfers.hpp), each run for each rank with the
// messages that the ranks would send each other. What is equal on all ranks - catalog, split into files, sizes - is
// made once here. Then one rank of the world plans once more, alone and from the beginning, and what that costs it is
// measured.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cli/plan_world.hpp"
#include "comm/messages.hpp"
#include "plan/extents.hpp"
#include "plan/hf_layout.hpp"
#include "plan/transfers.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"

namespace cairn::cli {

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

/// The bytes of all files assigned to all ranks, section by section, as a save does on a file system that wants no
/// fewer writers.
plan::ExtentMap assign_to_all(const plan::HfLayout& files, const plan::FileLayout& layout, int ranks,
                              std::uint64_t block_bytes);

/// The steps of planning a save that are measured, in their order. "shards" is what the layout costs (ShardMap::held_by
/// and a Source per tensor), which a trainer that describes its shards itself does not have.
inline constexpr std::array<std::string_view, 9> kPlanSteps = {"shards", "describe", "catalog",   "files",   "indexes",
                                                               "claims", "places",   "transfers", "exchange"};

struct StepCost {
  double seconds = 0;            ///< of the processor
  std::uint64_t peak_bytes = 0;  ///< of the heap: what the rank had from before, messages that came, and the step's own
};

struct RankCost {
  int rank = 0;
  std::array<StepCost, kPlanSteps.size()> steps;
  double seconds = 0;            ///< of all steps
  std::uint64_t peak_bytes = 0;  ///< the largest of all steps
  std::uint64_t kept_bytes = 0;  ///< what the plan takes when it is made, until the next save
};

/// Requires: the world keeps the rank's records. Throws Error(kInternal) when the rank's plan differs from the world's.
RankCost replay_rank(const PlanWorld& world, int rank);

}  // namespace cairn::cli
