// The raw pattern of IOR: one file, of which every rank writes and reads one contiguous share in large transfers.
#pragma once

#include <cstdint>
#include <filesystem>

#include "peer_clock.hpp"

namespace cairn::peers {

struct RawOptions {
  std::filesystem::path directory;
  std::uint64_t size_bytes = 0;  ///< bytes of all ranks
  bool is_direct = false;        ///< O_DIRECT
};

/// Collective. Throws std::system_error; the job then ends.
Seconds raw_save(const RawOptions& options);

struct RawLoaded {
  Seconds seconds;
  bool is_equal = false;
};
/// Collective, on any number of ranks. Each rank reads an even share of raw_save()'s file, and then checks it.
RawLoaded raw_load(const RawOptions& options);

}  // namespace cairn::peers
