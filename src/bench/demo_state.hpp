// A made-up training state: the tensors of a real model, and one rank's part of them in one block of memory.
//
// `cairn demo` and `cairn bench` save and load this state. Every value is a function of its place (below), so any rank
// can check any part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ranks.hpp"
#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "cairn/tensor.hpp"
#include "comm/communicator.hpp"
#include "shard/model.hpp"
#include "shard/shard_map.hpp"

namespace cairn::bench {

// The values of a made-up training state.
//
// Element i of a tensor depends on section, name, dtype and i alone, so that any rank can check any part in any layout
// without the original. Counter-based: word j, of 64 bits, is mix64(seed + j * kGoldenGamma) (base/mix.hpp), and
// holds 64 / bits elements, little-endian. A mask and an addition on the whole word turn BF16, F16, F32 and F64 lanes
// into finite numbers with magnitude in [2^-8, 1); other dtypes keep raw bits.

class DemoValues {
 public:
  /// Throws Error(kUsage) for dtypes below 8 bits. Second moments ("…/moment2_0") are never negative.
  DemoValues(std::string_view section, std::string_view name, DType dtype);

  /// Writes elements [first, first + out.size() / element size) of the tensor.
  void fill(std::uint64_t first, std::span<std::byte> out) const;

  /// The first element with wrong bytes in `found`, which begins at element `first`; nothing if all are right.
  [[nodiscard]] std::optional<std::uint64_t> first_difference(std::uint64_t first,
                                                              std::span<const std::byte> found) const;

  [[nodiscard]] std::uint64_t element_bytes() const { return element_bytes_; }

 private:
  [[nodiscard]] std::uint64_t word(std::uint64_t index) const;

  std::uint64_t seed_;
  std::uint64_t element_bytes_;
  std::uint64_t mask_ = ~0ULL;
  std::uint64_t base_ = 0;
};

/// Fills a box of a tensor of `shape`, row-major, in `memory`, which has exactly the box's size.
void fill_box(const DemoValues& values, std::span<const std::uint64_t> shape, const Box& box,
              std::span<std::byte> memory);

/// Flat index, in the whole tensor, of the first wrong element of the box; nothing if all are right.
std::optional<std::uint64_t> check_box(const DemoValues& values, std::span<const std::uint64_t> shape, const Box& box,
                                       std::span<const std::byte> memory);

/// Weights (in the model's dtype), F32 master weights and two F32 Adam moments of every parameter.
struct DemoState {
  shard::Model model;
  std::string config;                 ///< content of config.json, with the state's number of layers
  std::vector<std::string> sections;  ///< sections[i] is the section of tensors[i]
  std::vector<Tensor> tensors;
  std::uint64_t bytes = 0;
};

/// Throws as shard::model_by_name.
DemoState demo_state_by_name(const std::string& model_name, std::optional<std::uint64_t> layers);

/// The state that `config`, the content of a config.json, describes. Throws as shard::model_from_config.
DemoState demo_state_of_config(const std::string& config, std::optional<std::uint64_t> layers);

/// Total bytes of a tensor's boxes on a rank.
std::uint64_t bytes_of(const DemoState& state, const shard::HeldTensor& held);

/// One rank's part of the state, with all boxes in one allocation. Rank-local.
class HeldState {
 public:
  /// `state` must outlive the object. The memory is not initialised.
  HeldState(const DemoState& state, const shard::ShardMap& map, int rank);
  /// Uses `memory`, which must not be taken again while the object exists.
  HeldState(const DemoState& state, const shard::ShardMap& map, int rank, RankMemory& memory);

  void fill();

  /// Writes bytes that differ from the state's, so that stale bytes cannot be mistaken for loaded ones, and so that the
  /// kernel provides the memory before the load.
  void overwrite();

  struct Difference {
    std::uint32_t tensor = 0;
    std::uint64_t element = 0;  ///< flat index in the whole tensor
  };
  struct Comparison {
    std::vector<std::uint32_t> tensors;  ///< compared tensors, ascending: all with an element on this rank
    std::uint64_t bytes = 0;
    std::optional<Difference> first;  ///< lowest by (tensor, box)
  };
  /// Compares every box with the values of fill(), up to the first difference in the box.
  [[nodiscard]] Comparison compare() const;

  [[nodiscard]] const std::vector<shard::HeldTensor>& held() const { return held_; }
  [[nodiscard]] std::span<std::byte> memory_of(std::size_t held_index);
  [[nodiscard]] std::uint64_t bytes() const { return begins_.back(); }

 private:
  /// Leaves the memory to the other constructors.
  HeldState(const DemoState& state, std::vector<shard::HeldTensor> held);

  const DemoState& state_;
  std::vector<shard::HeldTensor> held_;
  std::vector<std::uint64_t> begins_;  // begin of each held_[i] in memory_, then the end of the last
  std::unique_ptr<std::byte[]> own_;   // null with RankMemory
  std::span<std::byte> memory_;
};

/// The comparison of a loaded state by all ranks together.
struct Verdict {
  std::uint64_t tensors = 0;  ///< number of tensors with an element that a rank compared
  std::uint64_t bytes = 0;
  std::optional<HeldState::Difference> first;  ///< lowest by (tensor, element)
};

/// Collective. Joins the comparisons of all ranks. `tensors`: number of tensors in the whole state.
Verdict reduce(comm::Communicator& communicator, const HeldState::Comparison& mine, std::size_t tensors);

/// Throws Error(kInternal) if less than the whole state was compared, since such a comparison proves nothing.
void check_completeness(const Verdict& verdict, const DemoState& state);

/// Collective: compares a loaded state, and returns the number of compared bytes. Throws Error(kIntegrity) for a byte
/// that differs, with `what` as the name of the load; otherwise as check_completeness().
std::uint64_t check_loaded(comm::Communicator& communicator, const HeldState& held, const DemoState& state,
                           const std::string& what);

/// "section model, tensor 'x', element 7: not the value that was saved".
std::string describe(const HeldState::Difference& difference, const DemoState& state);

}  // namespace cairn::bench
