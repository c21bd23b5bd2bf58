#include "directory/carried.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/bytes.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "directory/open_stage.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kCopyBytes = 4ULL << 20;

/// Throws unless `found` is the checksum that the manifest has of the file. Files that it does not list were put there
/// later, by people.
void check_checksum(const OpenCheckpoint& checkpoint, const std::string& name, std::uint32_t found) {
  if (!checkpoint.manifest) return;
  const auto& listed = checkpoint.manifest->carried_files;
  const auto at = std::ranges::find(listed, name, &format::ManifestFile::name);
  if (at == listed.end() || found == at->crc32c) return;
  throw Error(ErrorKind::kIntegrity, fmt::format("'{}' {}: the file was damaged or changed since",
                                                 base::printable((checkpoint.directory / name).string()),
                                                 format::mismatch_words(found, at->crc32c)));
}

}  // namespace

std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes) {
  if (is_stage(checkpoint)) return read_carried_of_stage(checkpoint, name, limit_bytes);
  std::string text = os::read_text(checkpoint.directory / name, limit_bytes);
  check_checksum(checkpoint, name, format::crc32c(base::as_bytes(text)));
  return text;
}

base::ByteStream carried_stream(const OpenCheckpoint& checkpoint, const std::string& name) {
  if (is_stage(checkpoint)) return carried_stream_of_stage(checkpoint, name);
  const std::uint64_t size = os::file_size(checkpoint.directory / name);
  return {size, [&checkpoint, name, size](const base::PutBytes& put) {
            const os::File file(checkpoint.directory / name, os::OpenMode::kRead);
            format::RunningCrc32c crc;
            base::Bytes piece(std::min(size, kCopyBytes));
            for (std::uint64_t at = 0; at < size; at += piece.size()) {
              piece.resize(std::min(kCopyBytes, size - at));
              file.read_at(piece, at);
              crc.add(piece);
              put(piece);
            }
            check_checksum(checkpoint, name, crc.value());
          }};
}

}  // namespace cairn::checkpoint
