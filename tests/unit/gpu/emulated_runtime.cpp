#include "emulated_runtime.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cairn/error.hpp"

namespace cairn::gpu {

struct EventHandle {
  bool happened = false;
  StreamHandle* stream = nullptr;
};

struct StreamHandle {
  struct Touched {
    const void* memory = nullptr;
    std::uint64_t bytes = 0;
  };
  struct Work {
    std::function<void()> run;
    std::vector<Touched> touched;  ///< memory that the work may touch
    bool is_kernel = false;        ///< the work may touch all device memory
  };
  std::deque<Work> work;
};

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::byte kSlack{0xC7};  // fills the rest of an allocation's last page

struct Allocation {
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
};

struct World {
  std::recursive_mutex mutex;  // for all calls: simulated ranks are threads
  emulated::Mode mode = emulated::Mode::kAsLateAsPossible;
  emulated::Usage usage;
  std::uint64_t countdown = 0;
  std::map<const std::byte*, Allocation> memory;
  bool is_open = false;  ///< work that may touch device memory is running
};

World& world() {
  static World world;
  return world;
}

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

/// Sets the protection of all pages of these bytes.
void protect(const std::byte* memory, std::uint64_t bytes, int protection) {
  const std::uint64_t before = reinterpret_cast<std::uintptr_t>(memory) % kPageBytes;
  if (mprotect(const_cast<std::byte*>(memory) - before, whole_pages(before + bytes), protection) != 0) std::abort();
}

/// The allocation that contains a pointer, or the end.
auto allocation_of(const void* pointer) {
  auto& memory = world().memory;
  const auto* at = static_cast<const std::byte*>(pointer);
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) return memory.end();
  --found;
  return at < found->first + found->second.bytes ? found : memory.end();
}

/// Device memory is accessible only while the device works, and during a copy only the pages of the copy;
/// any other access ends with a segmentation fault. Protecting whole allocations for each copy took nine tenths
/// of the time of these tests.
class DeviceMemoryOpen {
 public:
  explicit DeviceMemoryOpen(const StreamHandle::Work& work) {
    for (const auto& [memory, bytes] : work.touched) {
      const auto found = allocation_of(memory);
      if (found != world().memory.end()) open(found->second, static_cast<const std::byte*>(memory), bytes);
    }
    if (!work.is_kernel) return;
    for (const auto& [memory, allocation] : world().memory) open(allocation, memory, allocation.bytes);
  }
  ~DeviceMemoryOpen() {
    for (const auto& [memory, bytes] : opened_) protect(static_cast<const std::byte*>(memory), bytes, PROT_NONE);
    if (!opened_.empty()) world().is_open = false;
  }
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;

 private:
  void open(const Allocation& allocation, const std::byte* memory, std::uint64_t bytes) {
    if (allocation.kind != MemoryKind::kDevice || bytes == 0) return;
    if (opened_.empty() && std::exchange(world().is_open, true))
      std::abort();  // closing would protect the outer object's pages
    protect(memory, bytes, PROT_READ | PROT_WRITE);
    opened_.push_back({memory, bytes});
  }

  std::vector<StreamHandle::Touched> opened_;
};

std::lock_guard<std::recursive_mutex> locked() { return std::lock_guard(world().mutex); }

void run_one(StreamHandle& stream) {
  auto work = std::move(stream.work.front());
  stream.work.pop_front();
  if (world().countdown != 0 && --world().countdown == 0) {
    stream.work.clear();
    throw Error(ErrorKind::kIo, "GPU: work on a stream failed: an emulated fault");
  }
  const DeviceMemoryOpen open(work);
  work.run();
}

void put_work(StreamHandle* stream, StreamHandle::Work work) {
  const auto lock = locked();
  stream->work.push_back(std::move(work));
  while (world().mode == emulated::Mode::kAtOnce && !stream->work.empty()) run_one(*stream);
}

std::byte* allocate(std::uint64_t bytes, MemoryKind kind) {
  const auto lock = locked();
  const std::uint64_t room = whole_pages(bytes);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, room));
  std::memset(memory, 0xA5, bytes);
  std::fill(memory + bytes, memory + room, kSlack);
  if (kind == MemoryKind::kDevice) protect(memory, bytes, PROT_NONE);
  world().memory[memory] = {bytes, kind};
  auto& usage = world().usage;
  auto& now = kind == MemoryKind::kDevice ? usage.device_bytes : usage.pinned_bytes;
  auto& most = kind == MemoryKind::kDevice ? usage.most_device_bytes : usage.most_pinned_bytes;
  now += bytes;
  most = now > most ? now : most;
  return memory;
}

void release(std::byte* memory) {
  const auto lock = locked();
  const auto found = world().memory.find(memory);
  if (found == world().memory.end()) std::abort();
  if (world().is_open) std::abort();
  const auto [bytes, kind] = found->second;
  if (kind == MemoryKind::kDevice) protect(memory, bytes, PROT_READ | PROT_WRITE);
  const auto is_slack = [](std::byte byte) { return byte == kSlack; };
  if (!std::all_of(memory + bytes, memory + whole_pages(bytes), is_slack)) std::abort();  // written beyond its end
  auto& usage = world().usage;
  (kind == MemoryKind::kDevice ? usage.device_bytes : usage.pinned_bytes) -= bytes;
  std::memset(memory, 0x5A, bytes);
  world().memory.erase(found);
  std::free(memory);
}

}  // namespace

namespace emulated {

void reset(Mode mode) {
  const auto lock = locked();
  Usage& usage = world().usage;
  usage.most_device_bytes = usage.device_bytes;
  usage.most_pinned_bytes = usage.pinned_bytes;
  world().mode = mode;
  world().countdown = 0;
}

void enqueue(StreamHandle* stream, std::function<void()> work) { put_work(stream, {std::move(work), {}, true}); }

Usage usage() {
  const auto lock = locked();
  return world().usage;
}
void fail_work(std::uint64_t countdown) {
  const auto lock = locked();
  world().countdown = countdown;
}

}  // namespace emulated

Availability availability() { return {1, ""}; }
std::string built_with() { return "an emulated device"; }
std::string describe_device(int) { return "an emulated device"; }

MemoryPlace place_of(const void* pointer) noexcept {
  const auto lock = locked();
  const auto found = allocation_of(pointer);
  if (found == world().memory.end()) return {};
  return {found->second.kind, found->second.kind == MemoryKind::kDevice ? 0 : -1};
}

int current_device() { return 0; }
void set_current_device(int) {}

namespace runtime {

std::byte* allocate_device(std::uint64_t bytes) { return allocate(bytes, MemoryKind::kDevice); }
void free_device(std::byte* memory) noexcept { release(memory); }
std::byte* allocate_pinned(std::uint64_t bytes) { return allocate(bytes, MemoryKind::kPinned); }
void free_pinned(std::byte* memory) noexcept { release(memory); }

StreamHandle* create_stream() {
  const auto lock = locked();
  ++world().usage.streams;
  return new StreamHandle();
}
void destroy_stream(StreamHandle* stream) noexcept {
  const auto lock = locked();
  --world().usage.streams;
  delete stream;
}
void synchronise(StreamHandle* stream) {
  const auto lock = locked();
  while (!stream->work.empty()) run_one(*stream);
}

EventHandle* create_event() { return new EventHandle(); }
void destroy_event(EventHandle* event) noexcept { delete event; }
void record(EventHandle* event, StreamHandle* stream) {
  const auto lock = locked();
  event->happened = false;
  event->stream = stream;
  put_work(stream, {[event] { event->happened = true; }, {}});
}
void wait(StreamHandle* stream, EventHandle* event) {
  const auto happen = [event] {
    while (event->stream != nullptr && !event->happened) run_one(*event->stream);
  };
  put_work(stream, {happen, {}});
}
float elapsed_ms(EventHandle*, EventHandle*) { return 1; }

void copy(void* to, const void* from, std::uint64_t bytes, StreamHandle* stream) {
  copy_rows({to, bytes, from, bytes, bytes, 1}, stream);
}

void copy_rows(const RowCopy& rows, StreamHandle* stream) {
  const auto each = [rows](const std::byte* from, std::uint64_t from_stride, std::byte* to, std::uint64_t to_stride) {
    for (std::uint64_t row = 0; row < rows.rows; ++row) {
      std::memcpy(to + row * to_stride, from + row * from_stride, rows.row_bytes);
    }
  };
  const auto* from = static_cast<const std::byte*>(rows.from);
  auto* to = static_cast<std::byte*>(rows.to);
  const auto touched = [rows](const void* memory, std::uint64_t stride) {
    return StreamHandle::Touched{memory, rows.rows == 0 ? 0 : (rows.rows - 1) * stride + rows.row_bytes};
  };
  if (place_of(rows.from).kind != MemoryKind::kHost) {
    return put_work(stream, {[=] { each(from, rows.from_stride, to, rows.to_stride); },
                             {touched(to, rows.to_stride), touched(from, rows.from_stride)}});
  }
  // Memory that is not pinned is read before the call returns.
  std::vector<std::byte> held(rows.rows * rows.row_bytes);
  each(from, rows.from_stride, held.data(), rows.row_bytes);
  put_work(stream, {[=, held = std::move(held)] { each(held.data(), rows.row_bytes, to, rows.to_stride); },
                    {touched(to, rows.to_stride)}});
}

void fill(void* to, unsigned char value, std::uint64_t bytes, StreamHandle* stream) {
  put_work(stream, {[=] { std::memset(to, value, bytes); }, {{to, bytes}}});
}

}  // namespace runtime
}  // namespace cairn::gpu
