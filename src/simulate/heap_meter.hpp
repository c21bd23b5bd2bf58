// The heap memory of a piece of work: counted at every operator new and delete of this thread.
//
// In a program with HeapMeter, heap_meter.cpp replaces these operators with malloc and free, and counts usable bytes by
// thread. Allocations with larger alignment than malloc's, or made directly by malloc and mmap, are not counted.
#pragma once

#include <cstdint>

namespace cairn::simulate {

/// Counts from construction on. Only one per thread at a time; earlier allocations must not be freed during the count.
class HeapMeter {
 public:
  HeapMeter();
  /// Bytes that were allocated and not freed.
  [[nodiscard]] std::uint64_t live_bytes() const;
  /// The maximum of live_bytes() since begin_peak() or the construction.
  [[nodiscard]] std::uint64_t peak_bytes() const;
  void begin_peak();

 private:
  std::int64_t base_;
};

}  // namespace cairn::simulate
