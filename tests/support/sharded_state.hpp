// A small sharded training state for every kind of cut, with known content, for tests of saving and loading.
//
// Content is a function of tensor, byte and version; a naive walk that shares no code with Cairn cuts out the shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace cairn::test {

struct StateTensor {
  std::string section;
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
};

/// Weights, optimizer state, scalars, an empty tensor, 3-d and sub-byte tensors: about 756 KiB.
std::vector<StateTensor> small_state();

/// Options that give the small state several files, many blocks and many rounds.
inline Options options_for_small_state(const std::string& engine = "auto") {
  Options options;
  options.engine.name = engine;
  options.files.max_bytes = 60'000;
  options.files.block_bytes = 4096;
  options.limits.memory_budget_bytes = 64 << 10;
  return options;
}

/// A state in which every rank, cut by rows or flat ranges, has runs of more than a megabyte that do not begin on page
/// boundaries, and shares blocks with the next rank.
std::vector<StateTensor> state_of_long_runs(int ranks);

inline Options options_for_long_runs(const std::string& engine) {
  Options options;
  options.engine.name = engine;
  options.files.block_bytes = 64 << 10;
  options.limits.memory_budget_bytes = 16 << 20;
  return options;
}

enum class Cut {
  kReplicated,  ///< every rank holds everything
  kRows,        ///< torch.chunk of dimension 0; late ranks may hold nothing
  kColumns,     ///< balanced cut of the last dimension (sub-byte tensors: as kRows)
  kFlat,        ///< balanced flat ranges (ZeRO) of 2-d tensors, up to 3 boxes; whole rows of other tensors
  kGrid,        ///< rows by rank / 2, columns by rank % 2, for an even number of ranks; otherwise kRows
  kOneRank,     ///< the last rank holds everything
  kMixed,       ///< the cuts above in turn, tensor by tensor
};

/// Boxes of tensor number `index` of a state on `rank` of `ranks`.
std::vector<Box> cut_boxes(const StateTensor& tensor, std::size_t index, Cut cut, int rank, int ranks);

/// Bytes of the whole tensor, which depend on `version`.
std::vector<std::byte> whole_content(const StateTensor& tensor, std::size_t index, int version);

/// One rank's shards, with their memory. Movable; sources() and targets() point into the memory.
class RankState {
 public:
  RankState(const std::vector<StateTensor>& tensors, Cut cut, int rank, int ranks);

  /// Fills the memory with the content, or with zeros.
  void fill(int version);
  void clear();
  /// Number of bytes that equal the content of `version`; the test compares it with bytes().
  [[nodiscard]] std::uint64_t matching_bytes(int version) const;
  [[nodiscard]] std::uint64_t bytes() const;
  /// Number of bytes that are equal in another state of the same tensors and cut.
  [[nodiscard]] std::uint64_t equal_bytes(const RankState& other) const;

  std::vector<Source> sources();
  std::vector<Target> targets();

 private:
  void describe(std::size_t i, Shard& shard) const;
  [[nodiscard]] std::vector<std::byte> expected(std::size_t i, int version) const;

  std::vector<StateTensor> tensors_;
  std::vector<std::vector<Box>> boxes_;
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace cairn::test
