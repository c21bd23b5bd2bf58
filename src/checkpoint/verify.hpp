// Verifies that the checkpoint on disk has the bytes that were written: checks carried files and every block of data
// files, rank-parallel, past the page cache where possible (io/disk_reader.hpp), and names every fault.
//
// Checkpoints of others have no checksums. Files of a Hugging Face cache are compared with the digests that are their
// names, and weights that ZeRO-3 left without elements are faults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
  std::uint32_t manifest_crc32c = 0;  ///< checksum of the text of cairn.json; 0: there is no valid one
  /// Set if the verification ended early (VerifyPart): so many bytes of the data files, in the order of cairn.blocks,
  /// were checked, by it and those before it.
  std::optional<std::uint64_t> position_bytes;
  std::vector<Fault> faults;  ///< rank 0's findings first, then faulty blocks in file order; same on all ranks
  std::vector<std::string> warnings;
  std::vector<Phase> phases;
  double seconds = 0;
};

/// A verification that goes on where an earlier one ended, and that may end early itself. Small files are always
/// checked.
struct VerifyPart {
  std::uint64_t begin_bytes = 0;      ///< VerifyResult::position_bytes of the earlier one; 0: from the beginning
  std::uint32_t manifest_crc32c = 0;  ///< of the checkpoint then; where it is another one now, begins at 0
  /// Asked on rank 0 before each slice of the data but the first; false ends the verification. Empty: always true.
  std::function<bool()> may_go_on = {};
  std::uint64_t slice_bytes = 64ULL << 20;  ///< of data that each rank reads between two questions, at least
};

/// Collective. Faults of the checkpoint are in the result, not thrown. Throws kNotFound if there is no checkpoint,
/// kFormat for a link that leads out of it, kUsage as refuse_single_file(), and kIo if a listed file is unreadable.
VerifyResult verify(comm::Communicator& communicator, const std::filesystem::path& path,
                    const opening::Allowed& allowed = {}, const VerifyPart& part = {});

}  // namespace cairn::checkpoint
