// Files that are called by a digest of their bytes, as those of a Hugging Face cache are, and the check of the digests.
//
// In a cache, snapshots/<revision>/<file> is a link to blobs/<digest>: SHA-256 for large files, and for small ones the
// SHA-1 that git computes of the text "blob <size>", a zero byte and the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "io/disk_reader.hpp"

namespace cairn::checkpoint {

struct NamedFile {
  std::string name;    ///< relative to the checkpoint directory
  std::string digest;  ///< 64 or 40 hexadecimal digits
  std::uint64_t size_bytes = 0;

  [[nodiscard]] bool is_sha256() const { return digest.size() == 64; }
};

/// Rank-local: those of the files whose real path is blobs/<digest>. `names`: relative to `directory`.
std::vector<NamedFile> named_files(const std::filesystem::path& directory, std::span<const std::string> names);

void put_named_files(base::ByteWriter& out, std::span<const NamedFile> files);
std::vector<NamedFile> get_named_files(base::ByteReader& in);

/// Numbers of the files that a rank reads, each file by one rank; pure, so that all ranks agree. The largest files are
/// given first, each to the rank with the fewest bytes.
std::vector<std::uint32_t> files_of_rank(std::span<const NamedFile> files, std::uint64_t ranks, std::uint64_t rank);

struct WrongDigest {
  std::string name;
  std::string message;  ///< one complete line
};

/// Rank-local: reads the files with these numbers whole, in pieces, past the page cache. Calls `seen` with the bytes of
/// each piece. Throws Error(kIo) if a file cannot be read.
std::vector<WrongDigest> check_digests(const std::filesystem::path& directory, std::span<const NamedFile> files,
                                       std::span<const std::uint32_t> numbers, io::DiskReader& reader,
                                       const std::function<void(std::uint64_t bytes)>& seen);

}  // namespace cairn::checkpoint
