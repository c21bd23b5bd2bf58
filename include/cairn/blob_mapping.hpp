// Assigns the blobs of the saving ranks to the loading ranks when their numbers differ.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace cairn {

/// Extras::rank_blob belongs to the rank that gave it. If the numbers of saving and loading ranks are equal, each rank
/// gets its own blob back. Otherwise the program must pass a mapping to Checkpointer::load_extras, because only the
/// program knows what its blobs mean.
class BlobMapping {
 public:
  enum class Kind {
    kSameRanks,  ///< each rank gets its own blob; kState if the number of ranks differs
    kByRank,     ///< each rank gets the blob of its number; ranks without one get none, and other blobs are not used
    kRank0,      ///< rank 0 gets all blobs
    kChosen,     ///< the blobs that the program names
  };
  /// Called on each rank when there are blobs. Returns the saving ranks, from 0 to `saving_ranks` - 1, whose blobs this
  /// rank wants: none, one or several; several ranks may want the same blob. Called again if the checkpoint was
  /// replaced in the meantime. An Error is rethrown on all ranks; other exceptions become kInternal.
  using Choose = std::function<std::vector<std::uint64_t>(std::uint64_t saving_ranks)>;

  BlobMapping() = default;
  static BlobMapping by_rank() { return BlobMapping(Kind::kByRank, {}); }
  static BlobMapping all_to_rank_0() { return BlobMapping(Kind::kRank0, {}); }
  static BlobMapping chosen(Choose choose) { return BlobMapping(Kind::kChosen, std::move(choose)); }

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] const Choose& choose() const { return choose_; }

 private:
  BlobMapping(Kind kind, Choose choose) : kind_(kind), choose_(std::move(choose)) {}
  Kind kind_ = Kind::kSameRanks;
  Choose choose_;
};

}  // namespace cairn
