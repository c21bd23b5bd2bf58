// Random numbers for tests. The seed is new in each run, printed once, and can be set by CAIRN_TEST_SEED; all ranks of
// an MPI test have the same seed (mpi_main.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cairn::test {

/// The seed of this process; printed ("CAIRN_TEST_SEED=123") when it is drawn.
std::uint64_t test_seed();

/// A separate generator for each `stream` (a test, a rank), derived from test_seed().
std::mt19937_64 make_random(std::uint64_t stream = 0);

/// Uniform in [low, high], both included.
std::uint64_t uniform(std::mt19937_64& random, std::uint64_t low, std::uint64_t high);

std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t size_bytes);

}  // namespace cairn::test
