// Writes the data files of a file layout: windows are filled by the caller, checksummed while in cache, and written.
//
// Headers are written after all data, so that a file cut off in the middle never has a valid header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/call.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "io/engine.hpp"
#include "io/exchange.hpp"
#include "io/straight_runs.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// Collective: fills this rank's window (or takes part without one) with tensor bytes; bytes of headers in it are left
/// alone. Returns the tensor bytes that it put there.
using FillWindow = std::function<std::uint64_t(std::uint64_t round, io::WindowBuffer window)>;

struct WriteJob {
  const plan::FileLayout& layout;
  const plan::ExtentMap& extents;
  std::span<const plan::Window> windows;  ///< this rank's
  const io::WindowPool& buffers;          ///< of the windows
  std::uint64_t rounds = 0;               ///< of all ranks
  /// What goes to the files without a window; null: nothing on any rank.
  const io::StraightRuns* straight = nullptr;
  std::span<const std::span<const std::byte>> memory = {};  ///< memory boxes of the straight runs
};

/// Collective. Creates the files in `directory`, writes and fsyncs everything, and returns the checksums (the same on
/// every rank).
format::BlockTable write_data(comm::Communicator& communicator, io::Engine& engine,
                              const std::filesystem::path& directory, const WriteJob& job, const FillWindow& fill,
                              Call& call);

}  // namespace cairn::checkpoint
