// Skipped tests, one line each, in the form that scripts/test counts: "[cairn] skipped Suite.Name: reason".
#pragma once

#include <string>
#include <vector>

namespace cairn::test {

/// One line for each skipped test of this process; call after RUN_ALL_TESTS. `where` (" on rank 3") follows names.
std::vector<std::string> skipped_tests(const std::string& where = "");

/// Whether at least one test was run. If not, for example because of a filter, prints a message; the program must then
/// fail.
bool ran_some_tests();

}  // namespace cairn::test
