// Skipped tests, one line each with its reason, in the form that scripts/test counts: "[cairn] skipped Suite.Name:
// why".
#pragma once

#include <string>
#include <vector>

namespace cairn::test {

/// The lines of the tests that this process skipped; after RUN_ALL_TESTS. `where` (" on rank 3") follows the names.
std::vector<std::string> skipped_tests(const std::string& where = "");

/// Whether at least one test was run; a filter or a mistake that leaves none is a failure, and said so.
bool ran_some_tests();

}  // namespace cairn::test
