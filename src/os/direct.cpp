#include "os/direct.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/log.hpp"
#include "os/fault.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

/// The smallest alignment that is used. Nearly every file system with O_DIRECT accepts it; used if none is stated.
constexpr std::uint64_t kUsualAlignment = 4096;
constexpr std::uint64_t kLargestAlignment = 64ULL << 10;

/// The alignment for O_DIRECT according to statx: 0 if O_DIRECT is refused, the usual one if none is stated.
std::uint64_t stated_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max<std::uint64_t>(status.stx_dio_mem_align, status.stx_dio_offset_align);
  }
#else
  static_cast<void>(descriptor);
#endif
  return kUsualAlignment;
}

}  // namespace

DirectFile open_direct(const std::filesystem::path& path, OpenMode mode) {
  DirectFile result;
  const auto refused = [&](const std::string& why) {
    result.file = File();
    result.refusal = fmt::format("O_DIRECT is refused on {}: {}", file_system_of(path).type, why);
  };
  if (const int fault = fault_error("os.direct", path); fault != 0) {
    refused(error_text(fault));
    return result;
  }
  if (file_system_of(path).lives_in_memory()) {
    refused("it lives in memory");
    return result;
  }
  result.file = File(path, mode);
  const int flags = ::fcntl(result.file.descriptor(), F_GETFL);
  if (flags < 0 || ::fcntl(result.file.descriptor(), F_SETFL, flags | O_DIRECT) != 0) {
    refused(error_text(errno));
    return result;
  }
  const std::uint64_t stated = stated_alignment(result.file.descriptor());
  if (stated == 0 || stated > kLargestAlignment || !std::has_single_bit(stated)) {
    refused(stated == 0 ? "the file system does not support it"
                        : fmt::format("it asks for an alignment of {} bytes", stated));
    return result;
  }
  // At least a page: a direct write of one part of a page and a cached write of the rest could undo each other.
  result.alignment = std::max(stated, kUsualAlignment);
  return result;
}

std::string internal::direct_refusal(const std::filesystem::path& path, const char* verb, int error) {
  const std::string refusal =
      fmt::format("O_DIRECT is refused on {}, at a {}: {}", file_system_of(path).type, verb, error_text(error));
  base::warn_once(refusal + "; the page cache is used instead");
  return refusal;
}

std::string read_direct(const DirectFile& file, const File& plain, std::span<std::byte> data, std::uint64_t offset,
                        std::uint64_t needed_bytes) {
  std::uint64_t done = 0;
  std::string refusal;
  while (done < needed_bytes && done % file.alignment == 0) {
    const auto fault = check_fault("read", file.file.path());
    // O_DIRECT cannot transfer so few bytes.
    if (fault && fault->short_bytes) break;
    int error = fault ? fault->error : 0;
    ssize_t moved = 0;
    if (error == 0) {
      moved =
          ::pread(file.file.descriptor(), data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
      if (moved < 0) error = errno;
    }
    if (error == EINTR) continue;
    if (is_unsupported(error)) {
      refusal = internal::direct_refusal(file.file.path(), "read", error);
      break;
    }
    if (error != 0) {
      throw_system_error(fmt::format("read of {} bytes at offset {} from", needed_bytes - done, offset + done),
                         file.file.path(), error);
    }
    if (moved == 0) break;
    done += static_cast<std::uint64_t>(moved);
    work_moved();
  }
  if (done < needed_bytes) plain.read_at(data.subspan(done, needed_bytes - done), offset + done);
  return refusal;
}

}  // namespace cairn::os
