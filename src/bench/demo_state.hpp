// A made-up training state: the tensors of a real model, and what one rank holds of them in one block of memory.
//
// `cairn demo` and `cairn bench` save and load it. Every value is a function of where it is (demo_values.hpp), so that any
// part can be checked anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/rank_memory.hpp"
#include "shard/model.hpp"
#include "shard/shard_map.hpp"

namespace cairn::bench {

/// Weights (as the model has them), F32 master weights and two F32 Adam moments of every parameter.
struct DemoState {
  shard::Model model;
  std::string config;                 ///< config.json text, with the number of layers that the state has
  std::vector<std::string> sections;  ///< sections[i] is the section of tensors[i]
  std::vector<shard::TensorSpec> tensors;
  std::uint64_t bytes = 0;
};

/// Throws as shard::model_by_name.
DemoState demo_state_by_name(const std::string& model_name, std::optional<std::uint64_t> layers);

/// The state that the config.json text describes. Throws as shard::model_from_config.
DemoState demo_state_of_config(const std::string& config, std::optional<std::uint64_t> layers);

/// Of all boxes of a tensor that a rank holds.
std::uint64_t bytes_of(const DemoState& state, const shard::HeldTensor& held);

/// One rank's part of the state: every box in one allocation. Rank-local.
class HeldState {
 public:
  /// `state` must outlive the object. The memory is not initialised.
  HeldState(const DemoState& state, const shard::ShardMap& map, int rank);
  /// In memory that is kept, and must not be taken again while the object lives.
  HeldState(const DemoState& state, const shard::ShardMap& map, int rank, RankMemory& memory);

  void fill();

  /// Other bytes than the state's: stale ones must not pass for loaded ones, and what the kernel takes to give memory is
  /// no part of a load.
  void overwrite();

  struct Difference {
    std::uint32_t tensor = 0;
    std::uint64_t element = 0;  ///< flat index in the whole tensor
  };
  struct Comparison {
    std::vector<std::uint32_t> tensors;  ///< compared, ascending: those of which the rank holds at least one element
    std::uint64_t bytes = 0;
    std::optional<Difference> first;  ///< lowest by (tensor, box)
  };
  /// Compares every byte of every box with what fill() writes; the counts are of what was really compared.
  [[nodiscard]] Comparison compare() const;

  [[nodiscard]] const std::vector<shard::HeldTensor>& held() const { return held_; }
  [[nodiscard]] std::span<std::byte> memory_of(std::size_t held_index);
  [[nodiscard]] std::uint64_t bytes() const { return begins_.back(); }

 private:
  /// Without memory yet.
  HeldState(const DemoState& state, std::vector<shard::HeldTensor> held);

  const DemoState& state_;
  std::vector<shard::HeldTensor> held_;
  std::vector<std::uint64_t> begins_;  // of held_[i] in memory_; one more at the end
  std::unique_ptr<std::byte[]> own_;   // null in memory of somebody else
  std::span<std::byte> memory_;
};

}  // namespace cairn::bench
