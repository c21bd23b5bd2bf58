// Which way of raw I/O works in a directory is tried, not guessed: file systems refuse O_DIRECT at open, at the first write,
// or not at all, and io_uring may be switched off for the user, the container or the node.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/aligned_buffer.hpp"
#include "base/text.hpp"
#include "bench/raw_layout.hpp"
#include "bench/raw_transfer.hpp"
#include "cairn/error.hpp"
#include "os/file.hpp"

namespace cairn::bench {
namespace {

// Writes a page and reads it back.
void try_method(RawMethod method, int descriptor) {
  base::AlignedBuffer written(kRawPageBytes);
  base::AlignedBuffer found(kRawPageBytes);
  std::fill_n(written.span().data(), kRawPageBytes, std::byte{0x5a});
  std::fill_n(found.span().data(), kRawPageBytes, std::byte{0});
  const auto transfer = make_raw_transfer(method, 1);
  for (const bool is_write : {true, false}) {
    bool asked = false;
    transfer->run([&](unsigned) -> std::optional<RawRequest> {
      if (asked) return std::nullopt;
      asked = true;
      std::byte* data = (is_write ? written : found).span().data();
      return RawRequest{descriptor, is_write, data, kRawPageBytes, 0, kRawPageBytes};
    });
  }
  if (!std::equal(written.span().begin(), written.span().end(), found.span().begin())) {
    throw Error(ErrorKind::kIntegrity,
                fmt::format("a page that was written by {} is read back otherwise", name_of(method)));
  }
}

}  // namespace

RawMethod find_raw_method(const std::filesystem::path& directory) {
  // A file system in memory has nothing to go past, even where the kernel takes the flag.
  if (os::file_system_of(directory).lives_in_memory()) return RawMethod::kMemory;
  const std::filesystem::path path = directory / fmt::format("raw-probe-{}", ::getpid());
  std::string last;
  for (const RawMethod method : {RawMethod::kUring, RawMethod::kThreads, RawMethod::kBuffered}) {
    int descriptor = -1;
    bool works = false;
    try {
      descriptor = open_raw(path, O_RDWR | O_CREAT | O_TRUNC, method);
      try_method(method, descriptor);
      works = true;
    } catch (const Error& error) {
      last = error.what();
    }
    if (descriptor >= 0) ::close(descriptor);
    ::unlink(path.c_str());
    if (works) return method;
  }
  throw Error(ErrorKind::kIo,
              fmt::format("'{}' can be neither written nor read: {}", base::printable(directory.string()), last));
}

}  // namespace cairn::bench
