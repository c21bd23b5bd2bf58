#include "emulated_runtime.hpp"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "cairn/error.hpp"

namespace cairn::gpu {

struct EventHandle {
  bool happened = false;
  StreamHandle* stream = nullptr;
};

struct StreamHandle {
  std::deque<std::function<void()>> work;
};

namespace {

struct World {
  emulated::Mode mode = emulated::Mode::kAsLateAsPossible;
  emulated::Usage usage;
  std::uint64_t countdown = 0;
  std::map<const std::byte*, std::pair<std::uint64_t, MemoryKind>> memory;
};

World& world() {
  static World world;
  return world;
}

void run_one(StreamHandle& stream) {
  auto work = std::move(stream.work.front());
  stream.work.pop_front();
  if (world().countdown != 0 && --world().countdown == 0) {
    stream.work.clear();
    throw Error(ErrorKind::kIo, "GPU: work on a stream failed: an emulated fault");
  }
  work();
}

std::byte* allocate(std::uint64_t bytes, MemoryKind kind) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xA5, bytes);
  world().memory[memory] = {bytes, kind};
  auto& usage = world().usage;
  auto& now = kind == MemoryKind::kDevice ? usage.device_bytes : usage.pinned_bytes;
  auto& most = kind == MemoryKind::kDevice ? usage.most_device_bytes : usage.most_pinned_bytes;
  now += bytes;
  most = now > most ? now : most;
  return memory;
}

void release(std::byte* memory) {
  const auto found = world().memory.find(memory);
  if (found == world().memory.end()) std::abort();
  auto& usage = world().usage;
  (found->second.second == MemoryKind::kDevice ? usage.device_bytes : usage.pinned_bytes) -= found->second.first;
  std::memset(memory, 0x5A, found->second.first);
  world().memory.erase(found);
  std::free(memory);
}

}  // namespace

namespace emulated {

void reset(Mode mode) {
  auto memory = std::move(world().memory);
  Usage usage = world().usage;
  usage.most_device_bytes = usage.device_bytes;
  usage.most_pinned_bytes = usage.pinned_bytes;
  world() = World{mode, usage, 0, std::move(memory)};
}

void enqueue(StreamHandle* stream, std::function<void()> work) {
  stream->work.push_back(std::move(work));
  while (world().mode == Mode::kAtOnce && !stream->work.empty()) run_one(*stream);
}

Usage usage() { return world().usage; }
void fail_work(std::uint64_t countdown) { world().countdown = countdown; }

}  // namespace emulated

Availability availability() { return {1, ""}; }
std::string built_with() { return "an emulated device"; }
std::string describe_device(int) { return "an emulated device"; }

MemoryPlace place_of(const void* pointer) noexcept {
  const auto* at = static_cast<const std::byte*>(pointer);
  auto found = world().memory.upper_bound(at);
  if (found == world().memory.begin()) return {};
  --found;
  if (at >= found->first + found->second.first) return {};
  return {found->second.second, found->second.second == MemoryKind::kDevice ? 0 : -1};
}

int current_device() { return 0; }
void set_current_device(int) {}

namespace runtime {

std::byte* allocate_device(std::uint64_t bytes) { return allocate(bytes, MemoryKind::kDevice); }
void free_device(std::byte* memory) noexcept { release(memory); }
std::byte* allocate_pinned(std::uint64_t bytes) { return allocate(bytes, MemoryKind::kPinned); }
void free_pinned(std::byte* memory) noexcept { release(memory); }

StreamHandle* create_stream() {
  ++world().usage.streams;
  return new StreamHandle();
}
void destroy_stream(StreamHandle* stream) noexcept {
  --world().usage.streams;
  delete stream;
}
void synchronise(StreamHandle* stream) {
  while (!stream->work.empty()) run_one(*stream);
}

EventHandle* create_event() { return new EventHandle(); }
void destroy_event(EventHandle* event) noexcept { delete event; }
void record(EventHandle* event, StreamHandle* stream) {
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
  if (place_of(from).kind != MemoryKind::kHost) {
    return emulated::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  }
  // Memory that is not pinned is read before the call returns.
  const auto* begin = static_cast<const std::byte*>(from);
  emulated::enqueue(
      stream, [to, held = std::vector<std::byte>(begin, begin + bytes)] { std::memcpy(to, held.data(), held.size()); });
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
    return emulated::enqueue(stream, [=] { each(from, rows.from_stride, to, rows.to_stride); });
  }
  std::vector<std::byte> held(rows.rows * rows.row_bytes);
  each(from, rows.from_stride, held.data(), rows.row_bytes);
  emulated::enqueue(stream, [=, held = std::move(held)] { each(held.data(), rows.row_bytes, to, rows.to_stride); });
}

void fill(void* to, unsigned char value, std::uint64_t bytes, StreamHandle* stream) {
  emulated::enqueue(stream, [=] { std::memset(to, value, bytes); });
}

}  // namespace runtime
}  // namespace cairn::gpu
