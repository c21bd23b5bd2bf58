// Small pieces that save, load and verify share: files of a stored checkpoint as engine files, windows as operations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/open.hpp"
#include "format/safetensors.hpp"
#include "io/engine.hpp"
#include "io/exchange.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

std::vector<std::uint64_t> file_sizes(const format::StoredCheckpoint& stored);
std::vector<io::EngineFile> engine_files(const std::filesystem::path& directory,
                                         const format::StoredCheckpoint& stored);

/// Bytes that the largest of the windows needs in its buffer.
std::uint64_t largest_buffer(std::span<const plan::Window> windows);

/// Of the window with the most.
std::size_t most_parts(std::span<const plan::Window> windows);
/// Reads of the window, instead of what is in `ops`.
void put_read_ops(const io::WindowBuffer& window, std::vector<io::ReadOp>& ops);

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
