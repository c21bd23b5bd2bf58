// How much memory a piece of work takes: counted at every operator new and delete of this thread.
//
// A program that uses this has them replaced (heap_meter.cpp) by malloc and free with a count of usable bytes in
// between, thread by thread. What is aligned beyond malloc's own alignment, or taken by malloc and mmap directly, is
// not seen.
#pragma once

#include <cstdint>

namespace cairn::simulate {

/// Counts from its construction on. One at a time per thread; what was allocated before must not be freed meanwhile.
class HeapMeter {
 public:
  HeapMeter();
  /// Bytes that were allocated and not freed.
  [[nodiscard]] std::uint64_t live_bytes() const;
  /// The most that live_bytes was since begin_peak() or the construction.
  [[nodiscard]] std::uint64_t peak_bytes() const;
  void begin_peak();

 private:
  std::int64_t base_;
};

}  // namespace cairn::simulate
