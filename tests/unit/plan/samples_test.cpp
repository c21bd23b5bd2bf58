// Samples of a box for comparing replicas: different bytes in every step, the same on all ranks, and eventually all
// bytes.
#include "plan/samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace cairn::plan {
namespace {

std::vector<ByteRange> ranges_of(const Sample& sample) {
  std::vector<ByteRange> ranges;
  for (std::uint64_t i = 0; i < sample.size(); ++i) ranges.push_back(sample[i]);
  return ranges;
}

/// Expects the sample to be all of `bytes` bytes, in order and in pieces of at most kCompareBytes.
void expect_whole(const Sample& sample, std::uint64_t bytes) {
  std::uint64_t at = 0;
  for (const ByteRange& range : ranges_of(sample)) {
    EXPECT_EQ(range.begin, at);
    EXPECT_LE(range.bytes(), kCompareBytes);
    at = range.end;
  }
  EXPECT_EQ(at, bytes);
}

TEST(Samples, SmallBoxesAreWhole) {
  for (const std::uint64_t bytes : {0ULL, 1ULL, 63ULL, 65'535ULL, 65'536ULL}) expect_whole(Sample::of(bytes, 7), bytes);
  for (const std::uint64_t bytes : {0ULL, 65'537ULL, 1'000'000ULL}) expect_whole(Sample::all(bytes), bytes);
}

TEST(Samples, OfLargeBoxesEveryPartHasOnePlace) {
  for (const std::uint64_t bytes : {65'537ULL, 100'003ULL, 1ULL << 32, (1ULL << 62) + 5}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto places = ranges_of(Sample::of(bytes, seed));
      ASSERT_EQ(places.size(), 64U);
      for (std::uint64_t p = 0; p < 64; ++p) {
        EXPECT_EQ(places[p].begin % kPlaceBytes, 0U);
        EXPECT_EQ(places[p].end, std::min(places[p].begin + kPlaceBytes, bytes));
        const double part = static_cast<double>(bytes) / 64;
        EXPECT_GE(static_cast<double>(places[p].begin), part * static_cast<double>(p) - kPlaceBytes);
        EXPECT_LE(static_cast<double>(places[p].begin), part * static_cast<double>(p + 1));
      }
    }
  }
}

TEST(Samples, StepsTogetherSeeEveryByte) {
  const std::uint64_t bytes = 100'003;
  std::vector<bool> is_seen(bytes);
  for (std::uint64_t step = 0; step < 1000; ++step) {
    for (const ByteRange& range : ranges_of(Sample::of(bytes, sample_seed(step, 3, {{0}, {bytes}})))) {
      for (std::uint64_t at = range.begin; at < range.end; ++at) is_seen[at] = true;
    }
  }
  EXPECT_EQ(std::ranges::count(is_seen, true), static_cast<std::ptrdiff_t>(bytes));
}

/// Very many small tensors: some bytes of each, but not all.
TEST(Samples, StayWithinABudget) {
  const auto rule_of = [](std::size_t boxes, std::uint64_t bytes) {
    return sample_rule(std::vector<std::uint64_t>(boxes, bytes));
  };
  const auto bytes_of = [](const SampleRule& rule, std::uint64_t bytes) {
    std::uint64_t sum = 0;
    for (const ByteRange& range : ranges_of(Sample::of(bytes, 3, rule))) sum += range.bytes();
    return sum;
  };
  EXPECT_EQ(rule_of(0, 0).places, 64U);
  EXPECT_EQ(rule_of(256, 64 << 10).whole_bytes, 64U << 10) << "16 MiB";
  const SampleRule fewer = rule_of(257, 64 << 10);
  EXPECT_EQ(fewer.places, 63U);
  EXPECT_EQ(bytes_of(fewer, 64 << 10), 63U * 64);
  EXPECT_EQ(bytes_of(fewer, 4000), 4000U);
  const SampleRule fewest = rule_of(270'000, 2048);
  EXPECT_EQ(fewest.places, 1U);
  EXPECT_EQ(bytes_of(fewest, 2048), 64U);
  EXPECT_EQ(rule_of(1'000'000, 2ULL << 20).places, 64U) << "4 KiB of 2 MiB are less than a 64th";
  EXPECT_EQ(rule_of_places(64).whole_bytes, SampleRule().whole_bytes);
}

TEST(Samples, ChangeWithStepTensorAndBox) {
  const std::uint64_t bytes = 1 << 20;
  std::set<std::uint64_t> firsts;
  const auto add = [&](std::uint64_t step, std::uint64_t tensor, const Box& box) {
    const Sample sample = Sample::of(bytes, sample_seed(step, tensor, box));
    EXPECT_EQ(ranges_of(sample), ranges_of(Sample::of(bytes, sample_seed(step, tensor, box)))) << "on another rank";
    std::uint64_t sum = 0;
    for (const ByteRange& range : ranges_of(sample)) sum = sum * 31 + range.begin;
    firsts.insert(sum);
  };
  for (std::uint64_t step = 0; step < 100; ++step) add(step, 1, {{0, 0}, {512, 512}});
  for (std::uint64_t tensor = 2; tensor < 102; ++tensor) add(0, tensor, {{0, 0}, {512, 512}});
  for (std::uint64_t row = 1; row < 101; ++row) add(0, 1, {{row, 0}, {512, 512}});
  EXPECT_EQ(firsts.size(), 300U);
}

}  // namespace
}  // namespace cairn::plan
