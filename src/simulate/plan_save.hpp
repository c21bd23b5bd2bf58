// Every rank of a layout plans a save, in one process and without a byte of tensor data.
//
// The steps are those of a real save (planning/*_steps.hpp, plan/transfers.hpp), each run for each rank with the
// messages that the ranks would send each other. Values that are equal on all ranks (catalog, files, sizes) are made
// once. Then one rank of the world plans again from the beginning, alone, while its cost is measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/messages.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"
#include "simulate/plan_world.hpp"

namespace cairn::simulate {

class SaveWorld final : public PlanWorld {
 public:
  /// Plans for all ranks. Throws as a save would.
  explicit SaveWorld(const PlanInput& input);

  [[nodiscard]] std::span<const TrafficFigure> traffic_figures() const override;
  [[nodiscard]] std::vector<MetadataVolume> metadata() const override;
  [[nodiscard]] std::vector<int> busiest_ranks() const override;
  [[nodiscard]] RankCost replay(int rank) const override;

  /// The messages between the steps: a separate message to each rank, or the same message to all.
  struct Messages {
    explicit Messages(int ranks) : descriptions(ranks), spread(ranks), claims(ranks), provisions(ranks) {}
    MessageLog descriptions;
    comm::Messages samples;  ///< by sender; to all, like `stretches` and `header_shares`
    MessageLog spread;
    comm::Messages stretches;
    comm::Messages header_shares;
    comm::Messages index_shares;  ///< by sender; to rank 0
    MessageLog claims;
    MessageLog provisions;
  };
  [[nodiscard]] const Messages& messages() const { return messages_; }

 private:
  void exchange_catalog();
  void lay_out();
  void exchange_claims();
  struct Described {
    std::vector<Source> sources;
    std::vector<plan::MemoryBox> boxes;
    std::vector<std::uint32_t> tensor_of_shard;
  };
  [[nodiscard]] Described describe(int rank) const;
  [[nodiscard]] std::vector<plan::Runs> transfers_of(int rank) const override;
  void check_sums() const;

  Messages messages_;
  std::vector<std::uint32_t> number_of_tensor_;  ///< catalog number by tensor of the state
};

}  // namespace cairn::simulate
