// Transfers through io_uring and by threads, and the choice of a method.
#include "bench/raw_transfer.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "bench/raw_file.hpp"
#include "cairn/error.hpp"
#include "os/system_calls.hpp"

namespace cairn::bench {

using os::error_text;

namespace {

// A request and its progress.
struct Running {
  RawRequest request;
  std::uint64_t done_bytes = 0;

  // Whether the request is complete. Throws for errors except EINTR and EAGAIN, and if the file ends too early.
  bool advance(std::int64_t result) {
    if (result == -EINTR || result == -EAGAIN) return false;
    if (result <= 0) {
      const int error = static_cast<int>(-result);
      throw Error(ErrorKind::kIo,
                  fmt::format("raw {} of {} bytes at {} failed after {} bytes: {}", request.is_write ? "write" : "read",
                              request.size_bytes, request.offset_bytes, done_bytes,
                              error == 0 ? "end of file" : error_text(error)),
                  {error, {}});
    }
    done_bytes += static_cast<std::uint64_t>(result);
    return done_bytes >= request.needed_bytes;
  }
  [[nodiscard]] std::byte* data() const { return request.data + done_bytes; }
  [[nodiscard]] std::uint64_t size_bytes() const { return request.size_bytes - done_bytes; }
  [[nodiscard]] off_t offset() const { return static_cast<off_t>(request.offset_bytes + done_bytes); }
};

class UringTransfer final : public RawTransfer {
 public:
  explicit UringTransfer(unsigned slots) : running_(slots) {
    const int result = ::io_uring_queue_init(slots, &ring_, 0);
    if (result < 0) {
      throw Error(ErrorKind::kIo, fmt::format("io_uring is refused: {}", error_text(-result)), {-result, {}});
    }
  }
  ~UringTransfer() override { ::io_uring_queue_exit(&ring_); }
  UringTransfer(const UringTransfer&) = delete;
  UringTransfer& operator=(const UringTransfer&) = delete;

  void run(const NextRequest& next) override {
    std::exception_ptr failure;
    for (unsigned slot = 0; slot < running_.size(); ++slot) begin(slot, next);
    while (in_flight_ > 0) {
      if (const int result = ::io_uring_submit_and_wait(&ring_, 1); result < 0 && result != -EINTR) {
        // The kernel still uses the memory of requests in flight: nothing may be freed.
        base::log_error(fmt::format("io_uring_submit failed: {}", error_text(-result)));
        std::abort();
      }
      io_uring_cqe* entry = nullptr;
      while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
        const auto slot = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
        const int result = entry->res;
        ::io_uring_cqe_seen(&ring_, entry);
        --in_flight_;
        try {
          if (!running_[slot].advance(result)) {
            queue(slot);
          } else if (!failure) {
            begin(slot, next);
          }
        } catch (...) {
          if (!failure) failure = std::current_exception();
        }
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  void begin(unsigned slot, const NextRequest& next) {
    const auto request = next(slot);
    if (!request) return;
    running_[slot] = {*request, 0};
    queue(slot);
  }
  void queue(unsigned slot) {
    const Running& running = running_[slot];
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // never null: the ring has an entry for every slot
    const auto bytes = static_cast<unsigned>(running.size_bytes());
    const auto offset = static_cast<std::uint64_t>(running.offset());
    if (running.request.is_write) {
      ::io_uring_prep_write(entry, running.request.descriptor, running.data(), bytes, offset);
    } else {
      ::io_uring_prep_read(entry, running.request.descriptor, running.data(), bytes, offset);
    }
    ::io_uring_sqe_set_data64(entry, slot);
    ++in_flight_;
  }

  io_uring ring_{};
  std::vector<Running> running_;
  unsigned in_flight_ = 0;
};

void move_now(const RawRequest& request) {
  Running running{request, 0};
  for (bool done = false; !done;) {
    const ssize_t moved = request.is_write
                              ? ::pwrite(request.descriptor, running.data(), running.size_bytes(), running.offset())
                              : ::pread(request.descriptor, running.data(), running.size_bytes(), running.offset());
    done = running.advance(moved < 0 ? -errno : moved);
  }
}

class ThreadTransfer final : public RawTransfer {
 public:
  explicit ThreadTransfer(unsigned slots) : slots_(slots) {}

  void run(const NextRequest& next) override {
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&](unsigned slot) {
      for (;;) {
        std::optional<RawRequest> request;
        {
          const std::lock_guard lock(mutex);
          if (!failure) request = next(slot);
        }
        if (!request) return;
        try {
          move_now(*request);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> threads;
      for (unsigned slot = 0; slot < slots_; ++slot) threads.emplace_back(work, slot);
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  unsigned slots_;
};

// The method for a directory is found by trying, not by guessing: file systems refuse O_DIRECT at open, at the first
// write, or not at all, and io_uring can be disabled for the user, the container or the node.

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

std::string_view name_of(RawMethod method) {
  switch (method) {
    case RawMethod::kUring: return "O_DIRECT, io_uring";
    case RawMethod::kThreads: return "O_DIRECT, threads";
    case RawMethod::kBuffered: return "page cache";
    case RawMethod::kMemory: return "file system in memory";
  }
  return "unknown";
}

std::unique_ptr<RawTransfer> make_raw_transfer(RawMethod method, unsigned slots) {
  if (method == RawMethod::kUring) return std::make_unique<UringTransfer>(slots);
  return std::make_unique<ThreadTransfer>(method == RawMethod::kThreads ? slots : 1);
}

os::Descriptor open_raw(const std::filesystem::path& path, int flags, RawMethod method) {
  const int direct = method == RawMethod::kBuffered || method == RawMethod::kMemory ? 0 : O_DIRECT;
  os::Descriptor file(::open(path.c_str(), flags | direct | O_CLOEXEC, 0666));
  if (file.get() >= 0) return file;
  os::throw_system_error(direct != 0 ? "opening with O_DIRECT of" : "opening of", path, errno);
}

RawMethod find_raw_method(const std::filesystem::path& directory) {
  // A file system in memory has no cache to bypass, even if the kernel accepts the flag.
  if (os::file_system_of(directory).lives_in_memory()) return RawMethod::kMemory;
  const std::filesystem::path path = directory / fmt::format("raw-probe-{}", ::getpid());
  std::string last;
  int last_error = 0;
  for (const RawMethod method : {RawMethod::kUring, RawMethod::kThreads, RawMethod::kBuffered}) {
    bool works = false;
    try {
      const os::Descriptor file = open_raw(path, O_RDWR | O_CREAT | O_TRUNC, method);
      try_method(method, file.get());
      works = true;
    } catch (const Error& error) {
      last = error.what();
      last_error = error.system_error();
    }
    ::unlink(path.c_str());
    if (works) return method;
  }
  throw Error(ErrorKind::kIo,
              fmt::format("'{}' can be neither written nor read: {}", base::printable(directory.string()), last),
              {last_error, directory.native()});
}

}  // namespace cairn::bench
