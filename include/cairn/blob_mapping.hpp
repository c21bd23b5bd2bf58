// Which ranks get which of the blobs that another number of ranks saved.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace cairn {

/// Extras::rank_blob belongs to the rank that gave it: as many ranks as saved get their own back. Another number of ranks
/// has to say what it wants (Checkpointer::load_extras); nobody but the program knows what its blobs mean.
class BlobMapping {
 public:
  enum class Kind {
    kSameRanks,  ///< every rank its own; kState where another number of ranks saved
    kByRank,  ///< every rank the one of its number: of those beyond the saving ranks none, and the others' stay behind
    kRank0,   ///< all of them to rank 0
    kChosen,  ///< those that the program names
  };
  /// Called on each rank where there are blobs: the saving ranks, from 0 to `saving_ranks` - 1, whose blobs it wants. It
  /// may want none, and several ranks may want the same one. It is called again when the checkpoint was replaced
  /// meanwhile. An Error of it is thrown on all ranks, any other exception as kInternal.
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
