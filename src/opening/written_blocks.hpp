// Blocks with checksums in a checkpoint: their list, the tensors in their bytes, and the message about a damaged block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "format/safetensors.hpp"
#include "opening/open.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::opening {

/// The block table of an open checkpoint; the checkpoint must outlive this object.
class WrittenBlocks {
 public:
  explicit WrittenBlocks(const OpenCheckpoint& checkpoint);

  /// False if the checkpoint has no checksums; then only check() of a window may be called, and does nothing.
  [[nodiscard]] bool has_any() const { return checkpoint_.blocks.has_value(); }

  /// Throws Error(kIntegrity) unless `found`, the checksum of one block's bytes, is the one that was written.
  void check(const plan::FileRange& bytes, std::uint32_t found) const;
  /// As above, for all blocks of a window, whose parts begin and end on block boundaries (or at the file's end).
  /// Returns the number of bytes checked.
  std::uint64_t check(const plan::Window& window, std::span<const std::byte> buffer) const;

 private:
  const OpenCheckpoint& checkpoint_;
  std::vector<const format::BlockRow*> rows_;  ///< row of each stored file; null for a file that is not in the table
};

/// Names of a file's tensors that have bytes in the range, in file order.
std::vector<std::string> tensors_in(const plan::PackedCheckpoint& stored, const plan::FileRange& bytes);
/// As above, but for the file with this header.
std::vector<std::string> tensors_in(const format::SafetensorsHeader& header, const plan::FileRange& bytes);

struct BlockFault {
  std::filesystem::path path;
  std::uint64_t block = 0;
  plan::FileRange bytes;
  std::uint32_t found = 0;
  std::uint32_t written = 0;
  std::vector<std::string> tensors;
  bool has_names = true;  ///< false: the header cannot be read, so the names are unknown
};
/// "block 3 (bytes 12582912 to 16777216, tensors 'a', 'b', 'c', 'd' and 7 more) has checksum ..., ... was written".
std::string words_of(const BlockFault& fault);
/// "'dir/file': ", words_of() and ": the file was damaged since".
std::string message_of(const BlockFault& fault);

}  // namespace cairn::opening
