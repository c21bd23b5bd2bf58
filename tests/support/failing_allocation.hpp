// Makes the n-th allocation of this thread fail, for tests of failures on a single rank.
//
// A program that uses this file has its own operator new (failing_allocation.cpp). Allocations by malloc and MPI are
// not counted.
#pragma once

#include <cstdint>

namespace cairn::test {

/// Counts this thread's allocations while the object exists, and fails number `n` (from 1; 0: none) with
/// std::bad_alloc.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::uint64_t n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Stops counting and failing.
  void stop();
  [[nodiscard]] std::uint64_t allocations() const;
  [[nodiscard]] bool has_failed() const;
};

}  // namespace cairn::test
