#include "io/memory_store.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"

namespace cairn::io {
namespace {

void check_range(const std::filesystem::path& path, std::uint64_t size, std::uint64_t offset, std::uint64_t bytes) {
  if (offset <= size && bytes <= size - offset) return;
  throw Error(ErrorKind::kIo, "'" + base::printable(path.string()) + "' in memory ends at byte " +
                                  std::to_string(size) + ", bytes " + std::to_string(offset) + " to " +
                                  std::to_string(offset + bytes) + " were asked for");
}

}  // namespace

MemoryStore& MemoryStore::global() {
  static MemoryStore store;
  return store;
}

MemoryStore::Stored& MemoryStore::find(const std::filesystem::path& path) {
  return const_cast<Stored&>(std::as_const(*this).find(path));  // files_ is not const here
}

const MemoryStore::Stored& MemoryStore::find(const std::filesystem::path& path) const {
  const auto found = files_.find(path.string());
  if (found == files_.end()) {
    throw Error(ErrorKind::kNotFound, "no file '" + base::printable(path.string()) + "' in memory");
  }
  return found->second;
}

void MemoryStore::create(const std::filesystem::path& path, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = files_.try_emplace(path.string());
  if (!is_new)
    throw Error(ErrorKind::kIo, "cannot create '" + base::printable(path.string()) + "' in memory: File exists");
  place->second.size_bytes = size_bytes;
}

void MemoryStore::write(const std::filesystem::path& path, std::uint64_t offset, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  Stored& file = find(path);
  check_range(path, file.size_bytes, offset, data.size());
  for (std::uint64_t done = 0; done < data.size();) {
    const std::uint64_t at = (offset + done) % kPageBytes;
    const std::uint64_t bytes = std::min(kPageBytes - at, data.size() - done);
    auto& page = file.pages[(offset + done) / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    std::memcpy(page->data() + at, data.data() + done, bytes);
    done += bytes;
  }
}

void MemoryStore::read(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> data) const {
  const std::lock_guard lock(mutex_);
  const Stored& file = find(path);
  check_range(path, file.size_bytes, offset, data.size());
  for (std::uint64_t done = 0; done < data.size();) {
    const std::uint64_t at = (offset + done) % kPageBytes;
    const std::uint64_t bytes = std::min(kPageBytes - at, data.size() - done);
    const auto page = file.pages.find((offset + done) / kPageBytes);
    if (page == file.pages.end()) {
      std::memset(data.data() + done, 0, bytes);
    } else {
      std::memcpy(data.data() + done, page->second->data() + at, bytes);
    }
    done += bytes;
  }
}

std::uint64_t MemoryStore::size_bytes(const std::filesystem::path& path) const {
  const std::lock_guard lock(mutex_);
  return find(path).size_bytes;
}

bool MemoryStore::exists(const std::filesystem::path& path) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(path.string());
}

base::Bytes MemoryStore::content(const std::filesystem::path& path) const {
  base::Bytes bytes(size_bytes(path));
  read(path, 0, bytes);
  return bytes;
}

void MemoryStore::set_size(const std::filesystem::path& path, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  Stored& file = find(path);
  file.pages.erase(file.pages.lower_bound((size_bytes + kPageBytes - 1) / kPageBytes), file.pages.end());
  if (const auto last = file.pages.find(size_bytes / kPageBytes); last != file.pages.end()) {
    std::memset(last->second->data() + size_bytes % kPageBytes, 0, kPageBytes - size_bytes % kPageBytes);
  }
  file.size_bytes = size_bytes;
}

void MemoryStore::clear() {
  const std::lock_guard lock(mutex_);
  files_.clear();
}

}  // namespace cairn::io
