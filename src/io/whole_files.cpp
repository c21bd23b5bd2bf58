#include "io/whole_files.hpp"

#include <fmt/core.h>

#include <cstddef>
#include <span>

#include "base/aligned_buffer.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"
#include "plan/extents.hpp"

namespace cairn::io {

std::string read_text_from_disk(DiskReader& reader, const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const std::uint64_t size = os::File(path, os::OpenMode::kRead).size_bytes();
  if (size > limit_bytes) {
    throw Error(ErrorKind::kFormat,
                fmt::format("'{}' has {} bytes, but at most {} are expected", os::shown(path), size, limit_bytes),
                {0, path.native()});
  }
  std::string text;
  text.reserve(size);
  const EngineFile file[] = {{path, size}};
  const plan::Extent whole[] = {{0, 0, size, 0}};
  reader.read(file, whole, [&](std::uint32_t, std::uint64_t, std::span<const std::byte> data) {
    text.append(reinterpret_cast<const char*>(data.data()), data.size());
  });
  return text;
}

std::uint32_t crc32c_from_disk(DiskReader& reader, const std::filesystem::path& path, std::uint64_t size_bytes) {
  const EngineFile file[] = {{path, size_bytes}};
  const plan::Extent whole[] = {{0, 0, size_bytes, 0}};
  format::RunningCrc32c crc;
  reader.read(file, whole, [&](std::uint32_t, std::uint64_t, std::span<const std::byte> data) { crc.add(data); });
  return crc.value();
}

void read_back_file(const std::filesystem::path& path, std::uint64_t size_bytes, std::uint32_t crc32c) {
  base::AlignedBuffer memory(DiskReader::kLeastBytes);
  DiskReader reader(memory.span());
  const std::uint64_t size = os::file_size(path);
  const std::uint32_t found = crc32c_from_disk(reader, path, size);
  if (size == size_bytes && found == crc32c) return;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("'{}', which was just written, reads back otherwise: {} bytes with checksum {:08x}, {} with "
                          "{:08x} were written: {}",
                          os::shown(path), size, found, size_bytes, crc32c, kReadBackRefused),
              {0, path.native()});
}

}  // namespace cairn::io
