// Random numbers for property tests, one generator per test, from the run's seed (CAIRN_TEST_SEED repeats it).
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "random.hpp"

namespace cairn::plan_test {

class Seeded {
 public:
  explicit Seeded(std::string_view test) : engine_(test::make_random(std::hash<std::string_view>{}(test))) {}
  /// Uniform in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return test::uniform(engine_, low, high); }
  bool one_in(std::uint64_t n) { return between(1, n) == 1; }
  std::mt19937_64& engine() { return engine_; }
  [[nodiscard]] static std::string note() { return "CAIRN_TEST_SEED=" + std::to_string(test::test_seed()); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace cairn::plan_test
