// JSON values when memory runs out: an exception is thrown, and the old value stays.
#include <gtest/gtest.h>

#include <functional>
#include <new>

#include "base/json.hpp"
#include "failing_allocation.hpp"

namespace cairn::test {
namespace {

using base::Json;

Json document() {
  const char* const text =
      R"({"engine": "longer than a string holds in itself", "hints": {"a key that is as long": "x"},
      "sizes": [1, -2, 0.5, null, true, "one more text that is long"], "nested": {"lists": [[], [{}]]}})";
  return Json::parse(text, "document");
}

/// Runs `call` again and again, each time with one more allocation allowed, until all allocations succeed.
void fail_each_allocation(const std::function<void()>& call) {
  std::uint64_t failures = 0;
  for (std::uint64_t n = 1;; ++n) {
    FailingAllocation failing(n);
    bool has_thrown = false;
    try {
      call();
    } catch (const std::bad_alloc&) {
      has_thrown = true;
    }
    failing.stop();
    ASSERT_EQ(has_thrown, failing.has_failed());
    if (!has_thrown) break;
    ++failures;
  }
  EXPECT_GT(failures, 3U);
}

TEST(JsonMemory, ACopyThatFailsLeavesNothing) {
  const Json original = document();
  fail_each_allocation([&] { const Json copy = original; });
  EXPECT_TRUE(original == document());
}

TEST(JsonMemory, AnAssignmentThatFailsLeavesWhatWasThere) {
  const Json original = document();
  Json target = "a text that is longer than fits into a string";
  fail_each_allocation([&] {
    if (target.is_string()) target = original;
  });
  EXPECT_TRUE(target == original);
}

TEST(JsonMemory, ParsingAndWritingFail) {
  const Json original = document();
  fail_each_allocation([&] { static_cast<void>(original.dump({.indent = 2, .sorted = true})); });
  fail_each_allocation([&] { static_cast<void>(base::python_json(original)); });
  fail_each_allocation([] { static_cast<void>(document()); });
}

}  // namespace
}  // namespace cairn::test
