// Each rank's share consists of whole 4 KiB blocks. One aligned buffer holds the share; a transfer has up to 16 MiB.
#include "raw_files.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <system_error>

#include "bench/demo_state.hpp"

namespace cairn::peers {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kTransferBytes = 16 << 20;

struct Share {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

Share my_share(std::uint64_t size_bytes) {
  int rank = 0;
  int ranks = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  const std::uint64_t blocks = (size_bytes + kBlockBytes - 1) / kBlockBytes;
  const auto first_of = [&](int r) {
    return blocks * static_cast<std::uint64_t>(r) / static_cast<std::uint64_t>(ranks) * kBlockBytes;
  };
  return {first_of(rank), first_of(rank + 1) - first_of(rank)};
}

using Buffer = std::unique_ptr<std::byte, decltype(&std::free)>;

Buffer aligned_buffer(std::uint64_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, std::max(bytes, kBlockBytes)));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, &std::free};
}

const bench::DemoValues& values() {
  static const bench::DemoValues made("raw", "share", DType::kF32);
  return made;
}

std::filesystem::path path_of(const RawOptions& options) { return options.directory / "raw"; }

class File {
 public:
  File(const std::filesystem::path& path, int flags)
      : path_(path), file_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path_.string());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(file_); }

  // Calls `transfer(file, memory, bytes, offset)`, which is pread or pwrite, until the whole share is transferred.
  void each_transfer(const Share& share, std::byte* memory,
                     const std::function<ssize_t(int, std::byte*, std::size_t, off_t)>& transfer) const {
    for (std::uint64_t at = 0; at < share.bytes;) {
      const std::uint64_t bytes = std::min(kTransferBytes, share.bytes - at);
      const ssize_t done = transfer(file_, memory + at, bytes, static_cast<off_t>(share.begin + at));
      if (done > 0) {
        at += static_cast<std::uint64_t>(done);
      } else if (done == 0 || errno != EINTR) {
        throw std::system_error(done == 0 ? EIO : errno, std::generic_category(), "transfer " + path_.string());
      }
    }
  }

  void sync() const {
    if (::fsync(file_) != 0) throw std::system_error(errno, std::generic_category(), "fsync " + path_.string());
  }

 private:
  std::filesystem::path path_;
  int file_;
};

}  // namespace

Seconds raw_save(const RawOptions& options) {
  const Share share = my_share(options.size_bytes);
  const Buffer buffer = aligned_buffer(share.bytes);
  values().fill(share.begin / values().element_bytes(), std::span(buffer.get(), share.bytes));
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return timed([&] {
    const File file(path_of(options), O_WRONLY | O_CREAT | (options.is_direct ? O_DIRECT : 0));
    file.each_transfer(share, buffer.get(), [](int to, std::byte* memory, std::size_t bytes, off_t offset) {
      return ::pwrite(to, memory, bytes, offset);
    });
    file.sync();
    if (rank == 0) fsync_path(options.directory);
  });
}

RawLoaded raw_load(const RawOptions& options) {
  const Share share = my_share(options.size_bytes);
  const Buffer buffer = aligned_buffer(share.bytes);
  std::memset(buffer.get(), 0xa5, share.bytes);  // so that the kernel provides the memory before the clock starts
  RawLoaded out;
  out.seconds = timed([&] {
    const File file(path_of(options), O_RDONLY | (options.is_direct ? O_DIRECT : 0));
    file.each_transfer(share, buffer.get(), [](int from, std::byte* memory, std::size_t bytes, off_t offset) {
      return ::pread(from, memory, bytes, offset);
    });
  });
  const std::span<const std::byte> read(buffer.get(), share.bytes);
  out.is_equal = !values().first_difference(share.begin / values().element_bytes(), read);
  return out;
}

}  // namespace cairn::peers
