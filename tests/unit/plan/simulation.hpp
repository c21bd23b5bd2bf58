// A whole save and a whole load in one process: every rank's plan is made and carried out on files in memory, and every
// byte is counted.
//
// The oracle does not use runs: it moves single cells. A cell is one element, or four of a packed dtype (a whole number
// of bytes; test layouts cut packed tensors between cells).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/box.hpp"
#include "plan/catalog.hpp"
#include "plan/coverage.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "seeded.hpp"

namespace cairn::plan_test {

using Bytes = std::vector<std::byte>;

/// A box that one rank holds; its position in the list of the rank is Piece::local.
struct Held {
  std::uint32_t tensor = 0;
  Box box;
};

struct World {
  plan::Catalog catalog;
  std::vector<Bytes> truth;             ///< bytes of each tensor
  std::vector<std::vector<Held>> held;  ///< by rank
};

struct Knobs {
  std::uint64_t block_bytes = 64;
  std::uint64_t window_bytes = 256;
  std::uint64_t share_bytes = 32;
};

/// A few tensors of several sections and dtypes, not yet held by any rank.
World random_world(Seeded& random);

/// Distributes every element of every tensor over `ranks` ranks at random.
void hold_at_random(Seeded& random, World& world, int ranks);

/// Adds the boxes of rank `claim.rank`, claim by claim (claim.local is renumbered).
void hold(World& world, std::uint32_t tensor, const std::vector<plan::Piece>& claims);

/// All held boxes, numbered as in World::held.
std::vector<plan::Piece> held_pieces(const World& world);

/// The bytes of a box of a tensor, cell by cell.
Bytes box_bytes(const World& world, std::uint32_t tensor, const Box& box);

/// Saves the world: claims, transfers on the wire, windows, runs. Fails the test unless every byte of every data
/// section is written exactly once, inside its aggregator's window, and no header byte is written. Returns the files.
std::vector<Bytes> simulate_save(const World& world, const plan::FileLayout& layout, const Knobs& knobs);

/// Loads all boxes of the world's ranks from the files. Fails the test unless every byte arrives exactly once and is
/// correct. `selective`: uses only the ranges that some rank needs, otherwise whole files. Returns the bytes checked.
std::uint64_t simulate_load(const World& world, const format::StoredCheckpoint& stored, const std::vector<Bytes>& files,
                            const Knobs& knobs, bool selective);

}  // namespace cairn::plan_test
