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
  struct Work {
    std::function<void()> run;
    std::vector<const void*> touched;  ///< memory; empty: any
  };
  std::deque<Work> work;
};

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::byte kSlack{0xC7};  // what lies behind an allocation up to the end of its page

struct Allocation {
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  unsigned open = 0;  ///< work under way that may touch it
};

struct World {
  std::recursive_mutex mutex;  // of all calls: simulated ranks are threads
  emulated::Mode mode = emulated::Mode::kAsLateAsPossible;
  emulated::Usage usage;
  std::uint64_t countdown = 0;
  std::map<const std::byte*, Allocation> memory;
};

World& world() {
  static World world;
  return world;
}

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

void protect(const std::byte* memory, std::uint64_t bytes, int protection) {
  if (mprotect(const_cast<std::byte*>(memory), whole_pages(bytes), protection) != 0) std::abort();
}

/// The allocation that a pointer is of; the end when it is of none.
auto allocation_of(const void* pointer) {
  auto& memory = world().memory;
  const auto* at = static_cast<const std::byte*>(pointer);
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) return memory.end();
  --found;
  return at < found->first + found->second.bytes ? found : memory.end();
}

/// Device memory is there only while the device works: a host that touches it ends with a segmentation fault.
class DeviceMemoryOpen {
 public:
  explicit DeviceMemoryOpen(std::span<const void* const> touched) {
    if (touched.empty()) {
      for (auto at = world().memory.begin(); at != world().memory.end(); ++at) open(at->first, at->second);
    }
    for (const void* pointer : touched) {
      const auto found = allocation_of(pointer);
      if (found != world().memory.end()) open(found->first, found->second);
    }
  }
  ~DeviceMemoryOpen() {
    for (const std::byte* memory : opened_) {
      Allocation& allocation = world().memory.at(memory);
      if (--allocation.open == 0) protect(memory, allocation.bytes, PROT_NONE);
    }
  }
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;

 private:
  void open(const std::byte* memory, Allocation& allocation) {
    if (allocation.kind != MemoryKind::kDevice) return;
    if (allocation.open++ == 0) protect(memory, allocation.bytes, PROT_READ | PROT_WRITE);
    opened_.push_back(memory);
  }

  std::vector<const std::byte*> opened_;
};

std::lock_guard<std::recursive_mutex> locked() { return std::lock_guard(world().mutex); }

void run_one(StreamHandle& stream) {
  auto work = std::move(stream.work.front());
  stream.work.pop_front();
  if (world().countdown != 0 && --world().countdown == 0) {
    stream.work.clear();
    throw Error(ErrorKind::kIo, "GPU: work on a stream failed: an emulated fault");
  }
  const DeviceMemoryOpen open(work.touched);
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
  world().memory[memory] = {bytes, kind, 0};
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
  const auto [bytes, kind, open] = found->second;
  if (open != 0) std::abort();
  if (kind == MemoryKind::kDevice) protect(memory, bytes, PROT_READ | PROT_WRITE);
  const auto is_slack = [](std::byte byte) { return byte == kSlack; };
  if (!std::all_of(memory + bytes, memory + whole_pages(bytes), is_slack)) std::abort();  // written behind its end
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

void enqueue(StreamHandle* stream, std::function<void()> work) { put_work(stream, {std::move(work), {}}); }

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
  emulated::enqueue(stream, [event] { event->happened = true; });
}
void wait(StreamHandle* stream, EventHandle* event) {
  emulated::enqueue(stream, [event] {
    while (event->stream != nullptr && !event->happened) run_one(*event->stream);
  });
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
  if (place_of(rows.from).kind != MemoryKind::kHost) {
    return put_work(stream, {[=] { each(from, rows.from_stride, to, rows.to_stride); }, {to, from}});
  }
  // Memory that is not pinned is read before the call returns.
  std::vector<std::byte> held(rows.rows * rows.row_bytes);
  each(from, rows.from_stride, held.data(), rows.row_bytes);
  put_work(stream, {[=, held = std::move(held)] { each(held.data(), rows.row_bytes, to, rows.to_stride); }, {to}});
}

void fill(void* to, unsigned char value, std::uint64_t bytes, StreamHandle* stream) {
  put_work(stream, {[=] { std::memset(to, value, bytes); }, {to}});
}

}  // namespace runtime
}  // namespace cairn::gpu
