#include "simulate/heap_meter.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

struct Count {
  std::int64_t live = 0;
  std::int64_t peak = 0;
};
thread_local constinit Count count;

void forget(void* memory) noexcept {
  count.live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// The standard library's array and nothrow forms call these operators; the address sanitizer's nothrow form does not.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) return nullptr;
  count.live += static_cast<std::int64_t>(malloc_usable_size(memory));
  count.peak = std::max(count.peak, count.live);
  return memory;
}

void* operator new(std::size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { forget(memory); }
void operator delete(void* memory, std::size_t) noexcept { forget(memory); }

namespace cairn::simulate {

HeapMeter::HeapMeter() : base_(count.live) { begin_peak(); }

std::uint64_t HeapMeter::live_bytes() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, count.live - base_));
}

std::uint64_t HeapMeter::peak_bytes() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, count.peak - base_));
}

void HeapMeter::begin_peak() { count.peak = count.live; }

}  // namespace cairn::simulate
