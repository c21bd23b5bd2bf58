#include "life/restored_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "format/crc32c.hpp"
#include "format/safetensors.hpp"
#include "opening/open.hpp"
#include "opening/written_blocks.hpp"
#include "os/errno_class.hpp"
#include "plan/extents.hpp"

namespace cairn::life {
namespace {

namespace fs = std::filesystem;

/// Damage of a file, and not a failure that may pass.
bool is_damage(const Error& error) { return os::class_of(error) == os::ErrnoClass::kOfFile; }

/// Reads [0, end) of the file, and adds the whole blocks in it that differ.
void check_blocks(const fs::path& path, std::uint64_t size, const format::FileBlocks& file, std::uint64_t block_bytes,
                  plan::Extent range, io::DiskReader& reader, std::vector<std::uint64_t>& bad) {
  const io::EngineFile files[] = {{path, size}};
  const plan::Extent ranges[] = {range};
  format::RunningCrc32c crc;
  reader.read(files, ranges, [&](std::uint32_t, std::uint64_t offset, std::span<const std::byte> piece) {
    while (!piece.empty()) {
      const std::uint64_t block = offset / block_bytes;
      const std::uint64_t end = block * block_bytes + bytes_of_block(file, block_bytes, block);
      const auto part = piece.first(std::min<std::uint64_t>(piece.size(), end - offset));
      crc.add(part);
      offset += part.size();
      piece = piece.subspan(part.size());
      if (offset != end) continue;
      if (crc.value() != file.crcs[block]) bad.push_back(block);
      crc = {};
    }
    checkpoint::report_progress("verifying", offset, file.size_bytes);
  });
}

}  // namespace

std::uint64_t bytes_of_block(const format::FileBlocks& file, std::uint64_t block_bytes, std::uint64_t block) {
  return std::min(block_bytes, file.size_bytes - block * block_bytes);
}

std::vector<std::uint64_t> bad_blocks(const fs::path& path, const format::FileBlocks& file, std::uint64_t block_bytes,
                                      io::DiskReader& reader) {
  std::vector<std::uint64_t> bad;
  const std::uint64_t size = os::exists(path) ? os::file_size(path) : 0;
  const std::uint64_t readable = size >= file.size_bytes ? file.size_bytes : size / block_bytes * block_bytes;
  try {
    if (readable != 0) check_blocks(path, size, file, block_bytes, {0, 0, readable, 0}, reader, bad);
  } catch (const Error& error) {
    if (!is_damage(error)) throw;
    bad.clear();  // a sector that cannot be read: the other blocks may be good
    for (std::uint64_t block = 0; block * block_bytes < readable; ++block) {
      const std::uint64_t begin = block * block_bytes;
      try {
        check_blocks(path, size, file, block_bytes, {0, begin, begin + bytes_of_block(file, block_bytes, block), 0},
                     reader, bad);
      } catch (const Error& of_block) {
        if (!is_damage(of_block)) throw;
        bad.push_back(block);
      }
    }
  }
  for (std::uint64_t block = base::ceil_div(readable, block_bytes); block < file.crcs.size(); ++block) {
    bad.push_back(block);
  }
  return bad;
}

DamagedFile::DamagedFile(fs::path path, const format::FileBlocks& file, std::uint64_t block_bytes,
                         std::vector<std::uint64_t> bad, std::string problem)
    : path_(std::move(path)),
      file_(file),
      block_bytes_(block_bytes),
      bad_(std::move(bad)),
      problem_(std::move(problem)),
      found_(bad_.size()) {}

void DamagedFile::consider(const fs::path& directory, const format::BlockRows& table) {
  if (table.block_bytes() != block_bytes_) return;
  const auto row = std::ranges::find(table.files(), file_.name, &format::BlockRow::name);
  if (row == table.files().end() || row->size_bytes() != file_.size_bytes) return;
  const fs::path other = directory / file_.name;
  std::error_code failed;
  if (fs::equivalent(path_, other, failed) && !failed) return;  // a hard link has the same damage
  if (!os::exists(other)) return;
  Candidate candidate{directory, {}, false};
  for (const std::uint64_t block : bad_) {
    if (row->crc(block) == file_.crcs[block]) candidate.blocks.push_back(block);
  }
  if (!candidate.blocks.empty()) candidates_.push_back(std::move(candidate));
}

std::optional<std::size_t> DamagedFile::index_of_bad(std::uint64_t block) const {
  const auto place = std::ranges::lower_bound(bad_, block);
  if (place == bad_.end() || *place != block) return std::nullopt;
  return static_cast<std::size_t>(place - bad_.begin());
}

bool DamagedFile::read_own(std::uint64_t block, base::Bytes& into) const {
  into.resize(bytes_of_block(file_, block_bytes_, block));
  os::File(path_, os::OpenMode::kRead).read_at(into, block * block_bytes_);
  return format::crc32c(into) == file_.crcs[block];
}

/// Whatever is wrong with another directory, the block is then not found there.
bool DamagedFile::read_from(const Candidate& candidate, std::uint64_t block, base::Bytes& into) const {
  into.resize(bytes_of_block(file_, block_bytes_, block));
  try {
    os::File(candidate.directory / file_.name, os::OpenMode::kRead).read_at(into, block * block_bytes_);
  } catch (const Error& error) {
    if (os::is_shortage(error)) throw;
    return false;
  }
  return format::crc32c(into) == file_.crcs[block];
}

bool DamagedFile::find_block(std::uint64_t block, base::Bytes& into) {
  std::optional<std::size_t>& found = found_[index_of_bad(block).value()];
  if (found && read_from(candidates_[*found], block, into)) return true;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.has_other_header || !std::ranges::binary_search(candidate.blocks, block)) continue;
    if (!read_from(candidate, block, into)) continue;
    found = i;
    return true;
  }
  found.reset();
  return false;
}

bool DamagedFile::read_good(std::uint64_t block, base::Bytes& into) {
  return index_of_bad(block) ? find_block(block, into) : read_own(block, into);
}

/// The header from blocks that have their checksums, one's own or others'.
void DamagedFile::find_header() {
  base::Bytes block;
  std::string header;
  std::uint64_t end = format::kPrefixBytes;
  for (std::uint64_t i = 0; header.size() < end; ++i) {
    if (i >= file_.crcs.size() || !read_good(i, block)) return;
    header.append(reinterpret_cast<const char*>(block.data()), block.size());
    if (i != 0 || header.size() < format::kPrefixBytes) continue;
    try {
      end += format::header_length(block, file_.size_bytes, path_.string());
    } catch (const Error&) {
      return;  // not a safetensors file: name, size and place say all
    }
  }
  header.resize(end);
  header_ = std::move(header);
}

bool DamagedFile::has_same_header(const Candidate& candidate) const {
  try {
    std::string other(header_.size(), '\0');
    const os::File file(candidate.directory / file_.name, os::OpenMode::kRead);
    file.read_at(std::as_writable_bytes(std::span(other.data(), other.size())), 0);
    return other == header_;
  } catch (const Error& error) {
    if (os::is_shortage(error)) throw;
    return false;
  }
}

void DamagedFile::find() {
  find_header();
  if (!header_.empty()) {
    for (Candidate& candidate : candidates_) candidate.has_other_header = !has_same_header(candidate);
  }
  base::Bytes block;
  for (std::size_t i = 0; i < bad_.size(); ++i) {
    if (found_[i] && candidates_[*found_[i]].has_other_header) found_[i].reset();
    find_block(bad_[i], block);
    checkpoint::report_progress("comparing", i + 1, bad_.size());
  }
}

std::vector<std::uint64_t> DamagedFile::lost() const {
  std::vector<std::uint64_t> lost;
  for (std::size_t i = 0; i < bad_.size(); ++i) {
    if (!found_[i]) lost.push_back(bad_[i]);
  }
  return lost;
}

std::vector<fs::path> DamagedFile::used() const {
  std::vector<fs::path> used;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (std::ranges::find(found_, std::optional<std::size_t>(i)) != found_.end())
      used.push_back(candidates_[i].directory);
  }
  return used;
}

std::optional<fs::path> DamagedFile::place_of(std::uint64_t block) const {
  const auto index = index_of_bad(block);
  if (!index || !found_[*index]) return std::nullopt;
  return candidates_[*found_[*index]].directory;
}

std::uint64_t DamagedFile::bad_bytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint64_t block : bad_) bytes += bytes_of_block(file_, block_bytes_, block);
  return bytes;
}

std::vector<std::string> DamagedFile::tensors_of(std::uint64_t block) const {
  try {
    const auto header = header_.empty() ? opening::read_header(path_)  // not proven, but good enough for names
                                        : format::parse_header(std::string_view(header_).substr(format::kPrefixBytes),
                                                               file_.size_bytes, path_.string());
    const std::uint64_t begin = block * block_bytes_;
    return opening::tensors_in(header, plan::FileRange{0, begin, begin + bytes_of_block(file_, block_bytes_, block)});
  } catch (const Error&) {
    return {};
  }
}

void DamagedFile::restore(os::File& out) const {
  base::Bytes bytes;
  for (std::uint64_t block = 0; block < file_.crcs.size(); ++block) {
    const auto index = index_of_bad(block);
    const bool is_good = !index            ? read_own(block, bytes)
                         : !found_[*index] ? false
                                           : read_from(candidates_[*found_[*index]], block, bytes);
    if (!is_good) {
      throw Error(ErrorKind::kIntegrity,
                  fmt::format("block {} of '{}' could be read a moment ago, and cannot now", block, os::shown(path_)),
                  {0, path_.native()});
    }
    out.write_at(bytes, block * block_bytes_);
    checkpoint::report_progress("writing", block * block_bytes_ + bytes.size(), file_.size_bytes);
  }
}

}  // namespace cairn::life
