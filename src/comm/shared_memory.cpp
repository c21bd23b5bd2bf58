#include "comm/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <random>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "comm/wait.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/huge_pages.hpp"
#include "os/limits.hpp"
#include "os/system_calls.hpp"

namespace cairn::comm {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
/// A rank in barrier() sleeps until the last rank to arrive wakes it, or for this time or more; then it moves messages.
constexpr double kFirstSleepS = 200e-6;

std::uint64_t pages(std::uint64_t bytes) { return base::round_up(bytes, kPageBytes); }

[[noreturn]] void fail(const char* what, std::uint64_t bytes) {
  const int error = errno;
  throw Error(ErrorKind::kIo,
              fmt::format("{} of {} bytes of shared memory failed: {}{}", what, bytes, std::strerror(error),
                          os::remedy_of(error)),
              {error, {}});
}

std::byte* map(int descriptor, std::uint64_t bytes) {
  std::byte* const mapped = os::map_memory_file(descriptor, bytes);
  if (mapped == nullptr) fail("mapping", bytes);
  return mapped;
}

/// A mark at the start of a segment's last page; proves to the other ranks that they opened the right segment.
using Cookie = std::array<std::uint64_t, 2>;
/// Offsets in a segment's last page.
constexpr std::uint64_t kBarrierOffset = 1024;
constexpr std::uint64_t kNotesOffset = kPageBytes - SharedMemory::kNoteBytes;

/// A futex(2) on memory shared between processes; std::atomic::wait would use a private futex.
void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, double seconds) {
  timespec time{};
  time.tv_nsec = static_cast<long>(seconds * 1e9);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

/// Placed in zeroed memory that processes share.
struct SharedMemory::Barrier {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> round;

  /// In the last of `processes`, wakes the other processes and returns true. The others must wait for a new `round`.
  bool arrive(std::uint32_t processes) {
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < processes) return false;
    arrived.store(0, std::memory_order_relaxed);
    round.fetch_add(1, std::memory_order_release);
    wake_all(round);
    return true;
  }
};

/// A rank's message to the other ranks of its node.
struct SharedMemory::Card {
  std::uint64_t rank = 0;
  std::uint64_t process = 0;
  std::uint64_t descriptor = 0;
  std::uint64_t bytes = 0;  ///< usable bytes
  std::uint64_t own = 0;    ///< between threads: address of own_
  Cookie cookie{};
};

/// A rank's own part, in a memory file.
class SharedMemory::Segment {
 public:
  Segment(std::uint64_t bytes, std::uint64_t made_bytes)
      : bytes_(bytes), room_(pages(bytes) + kPageBytes), file_(::memfd_create("cairn", MFD_CLOEXEC)) {
    if (file_.get() < 0) fail("creation", room_);
    const auto set_size = [&] { return ::ftruncate(file_.get(), static_cast<off_t>(room_)); };
    errno = os::refuse_size(room_);
    if (errno == 0) errno = os::call_again(set_size);
    if (errno != 0) fail("creation", room_);
    data_ = map(file_.get(), room_);
    // Huge pages on kernels that cannot collapse pages (see make()), if transparent_hugepage/shmem_enabled allows them.
    ::madvise(data_, room_, MADV_HUGEPAGE);
    try {
      make(made_bytes);
      reserve(room_ - kPageBytes, kPageBytes);
    } catch (...) {
      ::munmap(data_, room_);
      throw;
    }
    std::random_device random;
    for (std::uint64_t& word : cookie_) word = (static_cast<std::uint64_t>(random()) << 32) | random();
    std::memcpy(data_ + room_ - kPageBytes, cookie_.data(), sizeof cookie_);
  }
  ~Segment() { ::munmap(data_, room_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, bytes_}; }
  void make(std::uint64_t bytes) {
    const std::uint64_t end = std::min(pages(std::min(bytes, bytes_)), room_ - kPageBytes);
    if (end <= made_) return;
    // Huge pages: fewer page faults, and fewer pages for O_DIRECT to pin. A unit that two windows share is allocated
    // with the first window.
    const std::uint64_t units_begin = base::round_up(made_, os::kHugePageBytes);
    const std::uint64_t units_end = std::min(base::round_up(end, os::kHugePageBytes), room_);
    if (units_begin < units_end) {
      os::make_pages_huge(file_.get(), units_begin, {data_ + units_begin, units_end - units_begin});
    }
    reserve(made_, end - made_);
    made_ = end;
  }
  /// Constructs a barrier in this segment.
  [[nodiscard]] Barrier* barrier() const {
    static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a barrier is shared between processes");
    static_assert(kBarrierOffset + sizeof(Barrier) <= kNotesOffset);
    return new (data_ + room_ - kPageBytes + kBarrierOffset) Barrier();
  }
  [[nodiscard]] Card card(int rank) const {
    return {static_cast<std::uint64_t>(rank),
            static_cast<std::uint64_t>(::getpid()),
            static_cast<std::uint64_t>(file_.get()),
            bytes_,
            0,
            cookie_};
  }

 private:
  // Reports lack of memory as an error here instead of a signal at first use. Kernels before 6.9 give up at any signal
  // and undo their work: with frequent timer signals only small pieces succeed.
  void reserve(std::uint64_t begin, std::uint64_t bytes) const {
    for (std::uint64_t piece = bytes; bytes > 0;) {
      piece = std::min(piece, bytes);
      const auto fault = os::check_fault("windows.reserve", {});
      errno =
          fault ? fault->error : ::posix_fallocate(file_.get(), static_cast<off_t>(begin), static_cast<off_t>(piece));
      if (errno == EINTR) {
        piece = std::max(pages(piece / 2), kPageBytes);
        continue;
      }
      if (errno != 0) fail("reservation", bytes);
      begin += piece;
      bytes -= piece;
    }
  }

  std::uint64_t bytes_;
  std::uint64_t room_;
  std::uint64_t made_ = 0;
  os::Descriptor file_;
  std::byte* data_ = nullptr;
  Cookie cookie_{};
};

SharedMemory::SharedMemory(Communicator& communicator, std::uint64_t bytes, Reach reach, std::uint64_t made_bytes)
    : liveness_(communicator.liveness()) {
  const int rank = communicator.rank();
  agree(communicator, "share memory", [&] {
    parts_.resize(static_cast<std::size_t>(communicator.size()));
    own_ = std::make_shared<Segment>(bytes, made_bytes);
  });
  parts_[static_cast<std::size_t>(rank)] = {own_->bytes(), true, false, nullptr};
  if (reach == Reach::kOwn || communicator.size() == 1) return;
  node_ = communicator.node();
  Card mine = own_->card(rank);
  mine.own = reinterpret_cast<std::uintptr_t>(&own_);
  const bool threads = native_handle(communicator) == MPI_COMM_NULL;
  if (!threads && node_->rank() == 0) barrier_ = own_->barrier();
  const auto cards = node_->all_gather(std::as_bytes(std::span(&mine, 1)));
  try {
    for (const base::Bytes& bytes_of_card : cards) {
      Card card;
      std::memcpy(&card, bytes_of_card.data(), sizeof card);
      if (card.rank == mine.rank) continue;
      Part& part = parts_[card.rank];
      if (threads) {
        // The other rank's thread stays in this constructor until the reduction below, so its pointer is valid.
        const auto& segment = *reinterpret_cast<const std::shared_ptr<Segment>*>(card.own);
        part = {segment->bytes(), true, false, segment};
      } else {
        part = open_part(card);
        // Cards are in the order of the node's ranks: the first is the card of the node's rank 0.
        if (&bytes_of_card == &cards.front()) {
          std::byte* const page = part.bytes.data() + pages(card.bytes);
          barrier_ = std::launder(reinterpret_cast<Barrier*>(page + kBarrierOffset));
        }
      }
    }
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
  // All or none: a rank that is reachable but cannot reach the others would wait for bytes that never come.
  if (node_->max(problem_.empty() ? 0 : 1) != 0) {
    if (problem_.empty()) problem_ = "another rank of the node cannot reach the others";
    forget_others(rank);
    barrier_ = nullptr;
    node_.reset();
  }
}

SharedMemory::Part SharedMemory::open_part(const Card& card) {
  const std::string path = fmt::format("/proc/{}/fd/{}", card.process, card.descriptor);
  os::fault_point("windows.share", path);
  const os::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kIo,
                fmt::format("the memory of rank {} cannot be opened by '{}': {}", card.rank, path, why));
  };
  if (file.get() < 0) refuse(std::strerror(errno));
  const std::uint64_t room = pages(card.bytes) + kPageBytes;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) != room) {
    refuse("it is another process's file");
  }
  std::byte* data = map(file.get(), room);
  Part part{{data, card.bytes}, true, true, nullptr};
  if (std::memcmp(data + room - kPageBytes, card.cookie.data(), sizeof card.cookie) != 0) {
    unmap(part);
    refuse("it is another process's file");
  }
  return part;
}

void SharedMemory::unmap(Part& part) {
  if (part.mapped) ::munmap(part.bytes.data(), pages(part.bytes.size()) + kPageBytes);
  part = {};
}

void SharedMemory::forget_others(int rank) {
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    if (r != static_cast<std::size_t>(rank)) unmap(parts_[r]);
  }
}

SharedMemory::~SharedMemory() {
  if (liveness_ && liveness_->is_dead()) {
    // MPI may use this rank's part for messages until the process ends.
    static_cast<void>(new std::shared_ptr<Segment>(own_));
  }
  for (Part& part : parts_) unmap(part);
}

void SharedMemory::make(std::uint64_t bytes) { own_->make(bytes); }

std::byte* SharedMemory::notes(int rank) const {
  const std::span<std::byte> part = of(rank);
  return part.data() + pages(part.size()) + kNotesOffset;
}

void SharedMemory::barrier() {
  if (!node_ || node_->size() == 1) return;
  if (barrier_ == nullptr) return node_->barrier();
  Wait wait(liveness_.get(), "the ranks of the node");
  const std::uint32_t round = barrier_->round.load(std::memory_order_acquire);
  if (barrier_->arrive(static_cast<std::uint32_t>(node_->size()))) return;
  double sleep_s = kFirstSleepS;
  while (barrier_->round.load(std::memory_order_acquire) == round) {
    sleep_while(barrier_->round, round, sleep_s);
    if (barrier_->round.load(std::memory_order_acquire) != round) return;
    sleep_s = std::max(wait.look_again(), kFirstSleepS);
    if (liveness_) liveness_->move_messages();
  }
}

}  // namespace cairn::comm
