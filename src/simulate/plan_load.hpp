// Every rank of a layout plans a load, in one process and without a byte of tensor data.
//
// The checkpoint is the one that a save of the same state makes: its files depend on the catalog alone, not on the
// saving ranks. The steps are those of a real load (opening/open_steps.hpp, checkpoint/targets.hpp,
// checkpoint/read_plan.hpp, plan/transfers.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "opening/open.hpp"
#include "opening/open_steps.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"
#include "simulate/plan_world.hpp"

namespace cairn::simulate {

class LoadWorld final : public PlanWorld {
 public:
  /// Plans for all ranks of the map; each rank loads all its boxes. Throws as a load would.
  explicit LoadWorld(const PlanInput& input);

  [[nodiscard]] std::span<const TrafficFigure> traffic_figures() const override;
  [[nodiscard]] std::vector<MetadataVolume> metadata() const override;
  [[nodiscard]] std::vector<int> busiest_ranks() const override;
  [[nodiscard]] RankCost replay(int rank) const override;

  /// The content of the directory, except tensor data.
  struct Stored {
    opening::FileTexts headers;
    std::map<std::string, std::string> indexes;  ///< text, by name
    std::string manifest;
    base::Bytes blocks;
  };
  [[nodiscard]] const Stored& stored() const { return stored_; }

  /// The messages of the opening, step by step (opening/open_steps.hpp).
  struct Messages {
    base::Bytes announced;  ///< by rank 0, to all
    base::Bytes blocks;     ///< by rank 0, to all
    comm::Messages summaries;
    base::Bytes judged;  ///< by rank 0, to all
    comm::Messages samples;
    MessageLog spread;
    comm::Messages stretches;
  };
  [[nodiscard]] const Messages& messages() const { return messages_; }
  /// On rank 0: announce() does step 1 of the opening, judge() does steps 4 and 5.
  [[nodiscard]] base::Bytes announce(opening::Listing& on_root) const;
  [[nodiscard]] static base::Bytes judge(opening::Listing& on_root, const comm::Messages& summaries);
  [[nodiscard]] opening::ReadText files_to_read() const;
  /// The number of wanted ranges of blocks, summed over the ranks, for checkpoint::RangesOfRanks.
  [[nodiscard]] const std::vector<std::uint64_t>& range_counts() const { return range_counts_; }
  /// The blocks that any rank wants: the result of the reduction that is used if there are many ranges.
  [[nodiscard]] const plan::BlockSet& wanted() const { return *wanted_; }
  /// The messages of each rank to all if there are few ranges; otherwise empty.
  [[nodiscard]] const comm::Messages& packed_ranges() const { return packed_ranges_; }

 private:
  void lay_out();
  opening::OpenCheckpoint open();
  void want(const opening::OpenCheckpoint& opened);
  [[nodiscard]] std::vector<plan::MemoryBox> boxes_of(int rank) const;
  [[nodiscard]] std::vector<plan::Runs> transfers_of(int rank) const override;
  void check_sums() const;

  Stored stored_;
  Messages messages_;
  format::StoredCheckpoint checkpoint_;
  std::vector<std::uint32_t> number_of_tensor_;  ///< number in the checkpoint, by tensor of the state
  std::unique_ptr<plan::BlockGrid> grid_;
  std::unique_ptr<plan::BlockSet> wanted_;
  std::vector<std::uint64_t> range_counts_;
  comm::Messages packed_ranges_;
};

}  // namespace cairn::simulate
