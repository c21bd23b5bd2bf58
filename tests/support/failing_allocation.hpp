// The n-th allocation of this thread fails: for tests of what one rank meets alone.
//
// A program that uses this has operator new replaced (failing_allocation.cpp). What malloc and MPI take is not counted.
#pragma once

#include <cstdint>

namespace cairn::test {

/// From its construction on counts the allocations of this thread, and fails number `n` (from 1 on; 0: none) with
/// std::bad_alloc, once.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::uint64_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Counts no more, and fails none.
  void stop();
  [[nodiscard]] std::uint64_t allocations() const;
  [[nodiscard]] bool has_failed() const;
};

}  // namespace cairn::test
