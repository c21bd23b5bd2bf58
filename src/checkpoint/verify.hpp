// Is the checkpoint on disk what was written? Every block of every file, rank-parallel, past the page cache where that
// can be had (io/disk_reader.hpp), and every fault by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

struct Fault {
  std::string file;
  std::vector<std::string> tensors;  ///< with bytes in the faulty block; none: only the header
  std::uint64_t block = 0;           ///< with has_block
  bool has_block = false;
  std::string message;  ///< one line, whole
};

struct VerifyResult {
  bool has_checksums = false;  ///< false: a directory without cairn.json; only structure was checked
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  ///< read and checked
  std::uint64_t blocks = 0;
  /// Of what was read with Cairn's own and carried files, bytes of which it is not known that they came from storage
  /// and not from this machine's page cache; and why.
  std::uint64_t cached_bytes = 0;
  std::string why_cached;
  std::vector<Fault> faults;  ///< all ranks', in file order, the same on every rank
  std::vector<std::string> warnings;
  std::vector<Phase> phases;
  double seconds = 0;
};

/// Collective. Never throws for a fault of the checkpoint: it is in the result. Throws kNotFound when there is no
/// checkpoint at all, kFormat for a link that leads out of it, kIo when reading fails for other reasons.
VerifyResult verify(comm::Communicator& communicator, const std::filesystem::path& path,
                    opening::Links links = opening::Links::kInside);

}  // namespace cairn::checkpoint
