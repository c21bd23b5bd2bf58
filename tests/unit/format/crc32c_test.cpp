// CRC-32C and its algebra, against test vectors and a bit-by-bit computation.
#include "format/crc32c.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <random>

#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

std::uint32_t slow_register(std::uint32_t state, std::span<const std::byte> data) {
  for (const std::byte byte : data) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return state;
}

base::Bytes random_bytes(std::mt19937_64& random, std::size_t size) {
  base::Bytes out(size);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(crc32c(base::as_bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(base::Bytes(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(crc32c(base::Bytes(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(raw_crc32c({}), 0u);
  EXPECT_EQ(raw_crc32c(base::Bytes(100, std::byte{0})), 0u);
}

TEST(Crc32c, EqualsTheBitByBitComputation) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (std::size_t size = 0; size < 300; ++size) {
    const auto data = random_bytes(random, size);
    ASSERT_EQ(crc32c(data), ~slow_register(0xffffffffu, data)) << size;
    ASSERT_EQ(raw_crc32c(data), slow_register(0, data)) << size;
    ASSERT_EQ(finish_crc32c(raw_crc32c(data), size), crc32c(data)) << size;
  }
}

TEST(Crc32c, ShiftsAsThoughZerosFollowed) {
  std::mt19937_64 random(7);
  const base::Bytes data = random_bytes(random, 100);
  const std::uint32_t raw = raw_crc32c(data);
  for (const std::size_t zeros : {0u, 1u, 2u, 7u, 8u, 255u, 256u, 257u, 4096u, 65535u, 65536u, 70000u, 1u << 20}) {
    base::Bytes longer(data.size() + zeros);
    std::copy(data.begin(), data.end(), longer.begin());
    EXPECT_EQ(shift_crc32c(raw, zeros), raw_crc32c(longer)) << zeros;
  }
}

TEST(Crc32c, ShiftsAreAdditiveUpTo64Bits) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const auto raw = static_cast<std::uint32_t>(random());
    const std::uint64_t a = random() >> (1 + random() % 63);
    const std::uint64_t b = random() >> (1 + random() % 63);
    ASSERT_EQ(shift_crc32c(shift_crc32c(raw, a), b), shift_crc32c(raw, a + b)) << raw << " " << a << " " << b;
  }
  // x has order 2^31 - 1 modulo P (P = (x + 1) times a primitive polynomial), and so has x^8.
  EXPECT_EQ(shift_crc32c(0x12345678u, (1ULL << 31) - 1), 0x12345678u);
  EXPECT_NE(shift_crc32c(0x12345678u, 1ULL << 30), 0x12345678u);
}

TEST(Crc32c, CombinesRandomSplits) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto data = random_bytes(random, random() % 5000);
    std::uint32_t combined = 0;
    std::uint32_t raw = 0;
    for (std::size_t at = 0; at < data.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 900, data.size() - at);
      const auto piece = std::span(data).subspan(at, count);
      at += count;
      combined = combine_crc32c(combined, crc32c(piece), count);
      raw ^= shift_crc32c(raw_crc32c(piece), data.size() - at);
    }
    ASSERT_EQ(combined, crc32c(data));
    ASSERT_EQ(finish_crc32c(raw, data.size()), crc32c(data));
  }
}

TEST(Crc32c, ShiftsInFarLessThanAMicrosecond) {
  constexpr int kShifts = 200'000;
  std::uint32_t raw = 1;
  const std::clock_t start = std::clock();
  for (int i = 0; i < kShifts; ++i) raw = shift_crc32c(raw, (4u << 20) - 1 - static_cast<unsigned>(i));
  const double nanoseconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC * 1e9 / kShifts;
  EXPECT_NE(raw, 0u);
  std::cout << "shift: " << nanoseconds << " ns\n";
  EXPECT_LT(nanoseconds, 2000);  // 72 ns in a release build; sanitizers are slower
}

}  // namespace
}  // namespace cairn::format::testing
