// One rank's part of the training state, made and checked by the functions of `cairn demo`, so that all systems have
// the same bytes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/demo_state.hpp"
#include "cairn/box.hpp"
#include "shard/shard_map.hpp"

namespace cairn::peers {

class PeerState {
 public:
  /// Rank-local. `config` is a file with the model's config.json.
  PeerState(const std::filesystem::path& config, const std::string& layout, int rank);

  struct Piece {
    std::size_t tensor = 0;  ///< index into state().tensors
    Box box;
    std::byte* memory = nullptr;
    bool is_first_holder = true;  ///< no lower rank holds the box; only first holders write
  };

  [[nodiscard]] const bench::DemoState& state() const { return state_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  void fill() { held_->fill(); }
  /// Fills the memory with bytes that the state does not have. Called before a load, so that stale bytes cannot be
  /// mistaken for loaded ones, and so that the kernel has provided all memory before the clock starts.
  void overwrite();
  /// Whether every byte has the value that fill() writes.
  [[nodiscard]] bool is_equal() const { return !held_->compare().first; }
  [[nodiscard]] std::uint64_t bytes() const { return held_->bytes(); }

 private:
  bench::DemoState state_;
  std::unique_ptr<bench::HeldState> held_;
  std::vector<Piece> pieces_;
};

}  // namespace cairn::peers
