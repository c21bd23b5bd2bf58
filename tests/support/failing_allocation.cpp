#include "failing_allocation.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

struct Count {
  bool is_on = false;
  std::uint64_t made = 0;
  std::uint64_t to_fail = 0;
};
thread_local constinit Count count;

}  // namespace

// The standard library's array forms call these.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (count.is_on && ++count.made == count.to_fail) return nullptr;
  return std::malloc(std::max<std::size_t>(bytes, 1));
}

void* operator new(std::size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace cairn::test {

FailingAllocation::FailingAllocation(std::uint64_t n) { count = {true, 0, n}; }
FailingAllocation::~FailingAllocation() { stop(); }
void FailingAllocation::stop() { count.is_on = false; }
std::uint64_t FailingAllocation::allocations() const { return count.made; }
bool FailingAllocation::has_failed() const { return count.to_fail != 0 && count.made >= count.to_fail; }

}  // namespace cairn::test
