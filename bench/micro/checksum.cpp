// Benchmarks of CRC-32C over blocks.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "check.hpp"
#include "format/crc32c.hpp"

namespace cairn::micro {
namespace {

std::vector<std::byte> random_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::mt19937_64 random(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// CRC-32C bit by bit, as the standard defines it.
std::uint32_t slow_crc32c(std::span<const std::byte> data) {
  std::uint32_t crc = 0xffffffffU;
  for (const std::byte byte : data) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

void checksum_of_a_block(benchmark::State& state) {
  const std::vector<std::byte> block = random_bytes(static_cast<std::size_t>(state.range(0)));
  const auto beginning = std::span(block).first(4096);
  require(format::crc32c(beginning) == slow_crc32c(beginning), "the CRC-32C of 4 KiB is wrong");
  for (auto _ : state) benchmark::DoNotOptimize(format::crc32c(block));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(checksum_of_a_block)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(4 << 20)->Arg(64 << 20);

}  // namespace
}  // namespace cairn::micro
