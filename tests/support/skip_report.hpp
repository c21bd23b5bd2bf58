// Skipped tests, one line each with its reason, in the form that scripts/test counts: "[cairn] skipped Suite.Name: why".
#pragma once

namespace cairn::test {

/// Prints the skipped tests of this process; call after RUN_ALL_TESTS.
void report_skipped_tests();

/// Whether at least one test was run; a filter or a mistake that leaves none is a failure, and said so.
bool ran_some_tests();

}  // namespace cairn::test
