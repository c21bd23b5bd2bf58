// The blocks of a checkpoint that have checksums: where they are listed, whose bytes they hold, and what is said of a bad one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "directory/open.hpp"
#include "format/safetensors.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

/// Per stored file its row of the block table; null pointers when the checkpoint has none.
std::vector<const format::FileBlocks*> block_rows(const OpenCheckpoint& checkpoint);

/// Names of the tensors of a file that have bytes in the range, in file order.
std::vector<std::string> tensors_in(const format::StoredCheckpoint& stored, std::uint32_t file, plan::ByteRange bytes);
std::vector<std::string> tensors_in(const format::SafetensorsHeader& header, plan::ByteRange bytes);

struct BlockFault {
  std::filesystem::path path;
  std::uint64_t block = 0;
  plan::ByteRange bytes;
  std::uint32_t found = 0;
  std::uint32_t written = 0;
  std::vector<std::string> tensors;
  bool has_names = true;  ///< false: the header cannot be read, so nobody knows them
};
/// "block 3 (bytes 12582912 to 16777216, tensors 'a', 'b' and 7 more) has checksum ..., ... was written".
std::string words_of(const BlockFault& fault);
/// "'dir/file': block 3 (bytes 12582912 to 16777216, tensors 'a', 'b' and 7 more) has checksum ..., ... was written: ...".
std::string message_of(const BlockFault& fault);

}  // namespace cairn::checkpoint
