// Flat buffers: sums and tilings for random parameter lists, and corner cases of the formulas. real_flat_test.cpp has
// real checkpoints.
#include "shard/flat_layout.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "flat_pads.hpp"

namespace cairn::shard {
namespace {

using Numels = std::vector<std::uint64_t>;

// Expects every element of every tensor in exactly one rank's local buffer, and pads in the rest. Returns the elements.
std::uint64_t check_tiling(const FlatBuffer& buffer, const Numels& numels, std::uint64_t ways) {
  std::vector<std::vector<int>> seen;
  for (const auto numel : numels) seen.emplace_back(numel, 0);
  std::uint64_t checked = 0;
  for (std::uint64_t at = 0; at < ways; ++at) {
    std::vector<int> local(local_elements(buffer, ways), 0);
    for (const FlatPiece& piece : pieces_of(buffer, numels, ways, at)) {
      for (std::uint64_t i = piece.begin; i < piece.end; ++i) {
        ++seen.at(piece.tensor).at(i);
        ++local.at(piece.at + i - piece.begin);
        ++checked;
      }
    }
    for (const FlatPad& pad : pads_of(buffer, numels, ways, at)) {
      for (std::uint64_t i = 0; i < pad.count; ++i) ++local.at(pad.at + i);
    }
    EXPECT_EQ(local, std::vector<int>(local.size(), 1));
  }
  for (const auto& tensor : seen) EXPECT_EQ(tensor, std::vector<int>(tensor.size(), 1));
  return checked;
}

TEST(FlatLayout, RandomListsTile) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uint64_t checked = 0;
  std::uint64_t expected = 0;
  for (int round = 0; round < 60; ++round) {
    Numels numels(random() % 9);
    for (auto& numel : numels) numel = random() % 300;
    const std::uint64_t ways = 1 + random() % 7;
    std::vector<std::uint8_t> shared(numels.size(), 0);
    if (!shared.empty()) shared[random() % shared.size()] = 1;
    for (const FlatBuffer& buffer :
         {zero1_buffer(numels, {ways, 2, false}), zero1_buffer(numels, {ways, 2, true}), zero3_buffer(numels, ways),
          fsdp1_buffer(numels, ways, 0), fsdp1_buffer(numels, ways, 8), megatron_buffer(numels, {ways, 0, 64, 128, {}}),
          megatron_buffer(numels, {ways, 200, 64, 128, shared})}) {
      checked += check_tiling(buffer, numels, ways);
      expected += std::accumulate(numels.begin(), numels.end(), std::uint64_t{0});
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(checked, expected);
  EXPECT_GT(checked, 50000U);
}

TEST(FlatLayout, Zero1PaddingSpansRanks) {
  // 16 elements over 1024 ranks: padded to 2048, two elements each, 1016 ranks hold padding only.
  const Numels numels{16};
  const FlatBuffer buffer = zero1_buffer(numels, {1024, 2, false});
  EXPECT_EQ(local_elements(buffer, 1024), 2U);
  EXPECT_EQ(pieces_of(buffer, numels, 1024, 7).size(), 1U);
  EXPECT_TRUE(pieces_of(buffer, numels, 1024, 8).empty());
  EXPECT_EQ(pads_of(buffer, numels, 1024, 1023), (std::vector<FlatPad>{{0, 2}}));
}

TEST(FlatLayout, Zero1RoundRobin) {
  const FlatBuffer buffer = zero1_buffer(Numels{10, 20, 30, 40, 50}, {2, 2, true});
  EXPECT_EQ(buffer.order, (std::vector<std::uint32_t>{0, 2, 4, 1, 3}));
  EXPECT_EQ(buffer.starts, (Numels{0, 90, 10, 110, 40}));
}

TEST(FlatLayout, Zero3Slots) {
  const Numels numels{10, 3, 1};
  const FlatBuffer buffer = zero3_buffer(numels, 4);
  EXPECT_EQ(local_elements(buffer, 4), 5U);  // slots of 3, 1 and 1
  EXPECT_EQ(pieces_of(buffer, numels, 4, 3), (std::vector<FlatPiece>{{0, 9, 10, 0, 0, 0}}));
  EXPECT_EQ(pieces_of(buffer, numels, 4, 1).size(), 2U);
}

TEST(FlatLayout, MegatronBuckets) {
  // Reverse order: 100 at 0, 30 at 128, 200 at 192. A bucket of 150 ends after the second (158 elements).
  const Numels numels{200, 30, 100};
  const FlatBuffer one = megatron_buffer(numels, {3, 0, 64, 128, {}});
  EXPECT_EQ(one.starts, (Numels{192, 128, 0}));
  ASSERT_EQ(one.buckets.size(), 1U);
  EXPECT_EQ(one.buckets[0].end, 768U);  // 392 up to lcm(3, 128) = 384
  const FlatBuffer two = megatron_buffer(numels, {3, 150, 64, 128, {}});
  ASSERT_EQ(two.buckets.size(), 2U);
  EXPECT_EQ(two.buckets[0].used_end, 158U);
  EXPECT_EQ(two.buckets[0].end, 384U);
  EXPECT_EQ(two.starts[0], 384U);
  const auto pieces = pieces_of(two, numels, 3, 0);  // 128 of each bucket
  EXPECT_EQ(pieces, (std::vector<FlatPiece>{{2, 0, 100, 0, 0, 0}, {0, 0, 128, 128, 1, 0}}));
  const FlatBuffer shared = megatron_buffer(numels, {1, 0, 64, 128, {0, 1, 0}});
  EXPECT_EQ(shared.buckets.size(), 3U);
  EXPECT_EQ(shared.starts, (Numels{256, 128, 0}));
}

TEST(FlatLayout, EmptyListsGiveEmptyBuffers) {
  const Numels none;
  EXPECT_EQ(local_elements(zero1_buffer(none, {4, 2, false}), 4), 0U);
  EXPECT_EQ(local_elements(zero3_buffer(none, 4), 4), 0U);
  EXPECT_EQ(local_elements(fsdp1_buffer(none, 4, 4), 4), 0U);
  EXPECT_EQ(local_elements(megatron_buffer(none, {4, 0, 64, 128, {}}), 4), 0U);
}

}  // namespace
}  // namespace cairn::shard
