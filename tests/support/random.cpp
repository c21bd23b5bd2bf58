#include "random.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace cairn::test {

namespace {

std::uint64_t choose_seed() {
  const char* given = std::getenv("CAIRN_TEST_SEED");
  std::uint64_t seed = 0;
  if (given != nullptr && *given != '\0') {
    char* end = nullptr;
    seed = std::strtoull(given, &end, 10);
    if (*end != '\0') {
      throw std::runtime_error(std::string("CAIRN_TEST_SEED must be a decimal number, not ") + given);
    }
    return seed;
  }
  seed = std::random_device{}();
  std::printf("CAIRN_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace

std::uint64_t test_seed() {
  static const std::uint64_t seed = choose_seed();
  return seed;
}

std::mt19937_64 make_random(std::uint64_t stream) {
  const std::uint64_t seed = test_seed();
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  return std::mt19937_64(sequence);
}

std::uint64_t uniform(std::mt19937_64& random, std::uint64_t low, std::uint64_t high) {
  return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
}

std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t at = 0; at < size_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), size_bytes - at));
  }
  return bytes;
}

}  // namespace cairn::test
