// Verifies that the checkpoint on disk has the bytes that were written: checks carried files and every block of data
// files, rank-parallel, past the page cache where possible (io/disk_reader.hpp), and names every fault.
//
// Checkpoints of others have no checksums. Files of a Hugging Face cache are compared with the digests that are their
// names, and weights that ZeRO-3 left without elements are faults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

struct Fault {
  std::string file;
  std::vector<std::string> tensors;  ///< tensors with bytes in the faulty block; empty if there are none or unknown
  std::uint64_t block = 0;           ///< set only with has_block
  bool has_block = false;
  std::string message;  ///< one complete line
};

struct VerifyResult {
  bool has_checksums = false;  ///< false: no valid cairn.json; only the structure was checked
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  ///< bytes of checked blocks
  std::uint64_t blocks = 0;
  /// Files of a Hugging Face cache that were compared with the digests in their names (named_digests.hpp), and their
  /// bytes. Large files have their SHA-256, small ones git's SHA-1.
  std::uint64_t sha256_files = 0;
  std::uint64_t git_files = 0;
  std::uint64_t named_bytes = 0;
  std::string dialect;                ///< empty if the checkpoint could not be opened
  std::vector<std::string> sections;  ///< in catalog order
  std::optional<std::uint64_t> step;
  /// Number of bytes that may have come from a machine's page cache instead of storage, and the reason.
  std::uint64_t cached_bytes = 0;
  std::string why_cached;
  std::vector<Fault> faults;  ///< rank 0's findings first, then faulty blocks in file order; same on all ranks
  std::vector<std::string> warnings;
  std::vector<Phase> phases;
  double seconds = 0;
};

/// Collective. Faults of the checkpoint are in the result, not thrown. Throws kNotFound if there is no checkpoint,
/// kFormat for a link that leads out of it, kUsage as refuse_single_file(), and kIo if a listed file is unreadable.
VerifyResult verify(comm::Communicator& communicator, const std::filesystem::path& path,
                    const opening::Allowed& allowed = {});

}  // namespace cairn::checkpoint
