// Parallel HDF5, used as its manual recommends: one file with a contiguous dataset per tensor. Every rank transfers its
// own hyperslabs.
#pragma once

#include <filesystem>

#include "peer_clock.hpp"
#include "peer_state.hpp"

namespace cairn::peers {

struct Hdf5Options {
  std::filesystem::path directory;
  bool is_collective = false;  ///< H5FD_MPIO_COLLECTIVE instead of independent transfers
};

/// Collective. Throws std::runtime_error; the job then ends.
Seconds hdf5_save(const Hdf5Options& options, const PeerState& state);
/// Collective. Loads into the memory of `state`. Throws as hdf5_save() does.
Seconds hdf5_load(const Hdf5Options& options, const PeerState& state);

}  // namespace cairn::peers
