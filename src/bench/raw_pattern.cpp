#include "bench/raw_pattern.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "bench/raw_layout.hpp"

namespace cairn::bench {

RawPattern::RawPattern(std::uint64_t seed, std::uint64_t period_bytes) : seed_(seed), period_(period_bytes) {
  std::mt19937_64 random(seed);
  for (std::uint64_t at = 0; at < period_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(period_.span().data() + at, &word, sizeof word);
  }
}

void RawPattern::fill(std::span<std::byte> buffer) const {
  for (std::uint64_t at = 0; at < buffer.size(); at += period_.size()) {
    const std::uint64_t bytes = std::min(buffer.size() - at, period_.size());
    std::memcpy(buffer.data() + at, period_.span().data(), bytes);
  }
}

std::uint64_t RawPattern::mark_of(std::uint32_t file, std::uint64_t page) const {
  std::uint64_t z = seed_ + (page * 65536 + file + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 31);
}

void RawPattern::stamp(std::span<std::byte> buffer, std::uint32_t file, std::uint64_t offset_bytes) const {
  for (std::uint64_t at = 0; at < buffer.size(); at += kRawPageBytes) {
    const std::uint64_t mark = mark_of(file, (offset_bytes + at) / kRawPageBytes);
    std::memcpy(buffer.data() + at, &mark, std::min<std::uint64_t>(sizeof mark, buffer.size() - at));
  }
}

std::optional<std::uint64_t> RawPattern::first_difference(std::span<const std::byte> found, std::uint32_t file,
                                                          std::uint64_t offset_bytes) const {
  for (std::uint64_t at = 0; at < found.size(); at += kRawPageBytes) {
    const std::uint64_t bytes = std::min(kRawPageBytes, found.size() - at);
    const std::uint64_t mark = mark_of(file, (offset_bytes + at) / kRawPageBytes);
    const std::uint64_t marked = std::min<std::uint64_t>(sizeof mark, bytes);
    const std::byte* expected = period_.span().data() + (offset_bytes + at) % period_.size();
    const bool equal = std::memcmp(found.data() + at, &mark, marked) == 0 &&
                       std::memcmp(found.data() + at + marked, expected + marked, bytes - marked) == 0;
    if (!equal) return offset_bytes + at;
  }
  return std::nullopt;
}

}  // namespace cairn::bench
