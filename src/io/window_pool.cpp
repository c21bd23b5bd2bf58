#include "io/window_pool.hpp"

#include "base/checked.hpp"
#include "base/log.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

}  // namespace

WindowPool::WindowPool(comm::Communicator& communicator, std::uint64_t bytes, comm::SharedMemory::Reach reach,
                       std::uint64_t bounce_bytes, Pages pages)
    : rank_(communicator.rank()),
      bytes_(communicator.max(bytes)),
      stride_bytes_(base::round_up(bytes_, kPageBytes)),
      buffers_(bounce_bytes == 0 ? kBuffers : 1),
      made_(pages == Pages::kAtOnce ? buffers_ : 0),
      memory_(communicator, buffers_ * stride_bytes_, reach, made_ * stride_bytes_) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "counters are shared between processes");
  comm::agree(communicator, "make buffers", [&] { bounce_buffer_ = base::AlignedBuffer(bounce_bytes); });
  if (!memory_.problem().empty()) {
    base::warn_once("ranks of a node send messages instead of sharing memory, which is slower: " + memory_.problem());
  }
}

void WindowPool::make_window(comm::Communicator& communicator, std::uint64_t round) {
  if (round % buffers_ < made_) return;
  comm::agree(communicator, "make buffers", [&] {
    os::fault_point("windows.make", "shared memory");
    memory_.make((made_ + 1) * stride_bytes_);
  });
  ++made_;
}

WindowBuffer WindowPool::of(std::span<const plan::Window> windows, std::uint64_t round) const {
  if (round >= windows.size() || windows[round].parts.empty()) return {};
  return {&windows[round], {buffer(rank_, round), windows[round].buffer_bytes}};
}

std::byte* WindowPool::buffer(int rank, std::uint64_t round) const {
  return memory_.of(rank).data() + round % buffers_ * stride_bytes_;
}

void WindowPool::put_buffers(std::uint64_t round, std::vector<std::byte*>& all) const {
  all.resize(memory_.ranks());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank] = memory_.reaches(static_cast<int>(rank)) ? buffer(static_cast<int>(rank), round) : nullptr;
  }
}

std::shared_ptr<WindowPool> WindowStore::get(comm::Communicator& communicator, std::uint64_t bytes,
                                             std::uint64_t bounce_bytes) {
  const std::uint64_t largest = communicator.max(bytes);
  // A pool without a bounce buffer has enough window buffers for every caller.
  const bool lacks_buffers = pool && !pool->bounce_buffer().empty() && bounce_bytes == 0;
  const bool lacks_bounce_buffer =
      pool && !pool->bounce_buffer().empty() && pool->bounce_buffer().size() < bounce_bytes;
  if (!pool || pool->bytes() < largest || lacks_buffers || lacks_bounce_buffer) {
    pool.reset();
    // Two steps, because the constructor is collective: either all ranks must enter it or none.
    std::shared_ptr<std::optional<WindowPool>> place;
    comm::agree(communicator, "make buffers", [&] { place = std::make_shared<std::optional<WindowPool>>(); });
    place->emplace(communicator, largest, comm::SharedMemory::Reach::kNode, bounce_bytes, WindowPool::Pages::kByWindow);
    pool = std::shared_ptr<WindowPool>(place, &**place);
  }
  return pool;
}

std::atomic<std::uint64_t>& WindowPool::counter(int rank, std::uint64_t round) const {
  // The notes are zeroed, and so are the counters in them. The notes lie apart from the buffers, so that the buffers
  // begin on a huge page: a request of 4 MiB can then lie in two huge pages instead of three.
  auto* const counters = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.notes(rank));
  constexpr std::size_t kCacheLine = 64 / sizeof(std::uint64_t);
  static_assert(kBuffers * 64 <= comm::SharedMemory::kNoteBytes);
  return counters[round % buffers_ * kCacheLine];
}

}  // namespace cairn::io
