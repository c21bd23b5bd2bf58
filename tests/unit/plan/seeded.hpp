// Random numbers for property tests: every test prints the seed that it ran with, CAIRN_TEST_SEED repeats it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace cairn::plan_test {

class Seeded {
 public:
  explicit Seeded(const char* test) : seed_(choose()), engine_(seed_) {
    std::cout << test << ": CAIRN_TEST_SEED=" << seed_ << "\n";
  }
  /// Uniform in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
  }
  bool one_in(std::uint64_t n) { return between(1, n) == 1; }
  template <class Container>
  const auto& pick(const Container& values) {
    return values[between(0, values.size() - 1)];
  }
  std::mt19937_64& engine() { return engine_; }
  [[nodiscard]] std::string note() const { return "CAIRN_TEST_SEED=" + std::to_string(seed_); }

 private:
  static std::uint64_t choose() {
    if (const char* given = std::getenv("CAIRN_TEST_SEED")) return std::strtoull(given, nullptr, 10);
    return std::random_device{}();
  }
  std::uint64_t seed_;
  std::mt19937_64 engine_;
};

}  // namespace cairn::plan_test
