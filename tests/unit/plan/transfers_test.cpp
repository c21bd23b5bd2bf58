// Transfers: the ranks that exchange data, runs on the wire, and the index of stored boxes compared with all pairs.
#include "plan/transfers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "layouts.hpp"
#include "seeded.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;
using testing::HasSubstr;
using testing::StartsWith;

/// One file: 16 bytes of header, then an F32 tensor of 8 x 8.
format::StoredCheckpoint small_checkpoint() {
  format::StoredCheckpoint stored;
  stored.files = {{"model.safetensors", 16 + 256}};
  stored.tensors = {{"model", "w", DType::kF32, {8, 8}, {{0, 16, {{0, 0}, {8, 8}}}}}};
  return stored;
}

/// Memory box number 3 of a rank, which is `box` of `tensor`, and a piece of this box.
struct Held {
  std::vector<MemoryBox> memory;
  std::vector<Piece> pieces;

  explicit Held(const Box& box, int rank = 1) : Held(box, box, rank) {}
  Held(const Box& box, const Box& piece, int rank = 1, std::uint32_t tensor = 0)
      : memory(4, MemoryBox{tensor, box, {}}), pieces{{tensor, 3, rank, piece}} {}
};

TEST(Transfers, OnePerAggregatorThatHoldsBytes) {
  const auto stored = small_checkpoint();
  const std::uint64_t sizes[] = {272};
  const ExtentMap extents(whole_files(sizes), 17, 16);  // 16 bytes each: header, then half a row
  const Box column{{0, 5}, {8, 2}};                     // in the second half of each row
  const Held held(column, 40);
  const auto transfers = transfers_of_memory(held.pieces, held.memory, stored, extents);
  ASSERT_EQ(transfers.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(transfers[i].file_rank, static_cast<int>(2 + 2 * i));
    Runs same = transfers[0];
    same.file_rank = transfers[i].file_rank;
    EXPECT_EQ(transfers[i], same);
    const Extent extent = extents.of(transfers[i].file_rank).at(0);
    EXPECT_EQ(transfers[i].bytes_before(extent.end) - transfers[i].bytes_before(extent.begin), 8U);
  }
  Runs expected = runs_of(DType::kF32, stored.tensors[0].boxes[0], column, column);
  expected.memory_rank = 40;
  expected.local = 3;
  expected.file_rank = 2;
  EXPECT_EQ(transfers[0], expected);
}

TEST(Transfers, OneForAnAggregatorWithSeveralExtentsOfTheFile) {
  const auto stored = small_checkpoint();
  std::vector<FileRange> ranges;  // only the half rows that contain the column
  for (std::uint64_t row = 0; row < 8; ++row) ranges.push_back({0, 32 + 32 * row, 48 + 32 * row});
  const ExtentMap extents(ranges, 2, 16);
  const Box column{{0, 5}, {8, 2}};
  const Held held(column);
  const auto transfers = transfers_of_memory(held.pieces, held.memory, stored, extents);
  ASSERT_EQ(transfers.size(), 2U);
  EXPECT_EQ(transfers[0].file_rank, 0);
  EXPECT_EQ(transfers[1].file_rank, 1);
  EXPECT_EQ(regions_of_memory(held.pieces, held.memory, stored), std::vector<Runs>{transfers[0]});
  EXPECT_EQ(extents.of(0).size(), 4U);
}

TEST(Transfers, NothingForEmptyParts) {
  const auto stored = small_checkpoint();
  const std::uint64_t sizes[] = {272};
  const ExtentMap extents(whole_files(sizes), 2, 16);
  EXPECT_TRUE(transfers_of_memory({}, {}, stored, extents).empty());
  const Held held(Box{{8, 0}, {0, 8}});
  EXPECT_TRUE(transfers_of_memory(held.pieces, held.memory, stored, extents).empty());
}

TEST(Transfers, RefusesWhatNoExtentHolds) {
  const auto stored = small_checkpoint();
  const ExtentMap extents({{0, 0, 100}}, 2, 4);
  const Held held(Box{{0, 0}, {8, 8}});
  try {
    transfers_of_memory(held.pieces, held.memory, stored, extents);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'w' (section model): 172 of the 256 bytes of elements [0:8, 0:8]"));
  }
  EXPECT_EQ(transfers_of_memory(held.pieces, held.memory, stored, extents, OutsideExtents::kStays).size(), 2U);
}

TEST(Transfers, RefusesPartsThatDoNotFit) {
  const auto stored = small_checkpoint();
  const std::uint64_t sizes[] = {272};
  const ExtentMap extents(whole_files(sizes), 2, 16);
  const auto error_kind = [&](const Held& held) {
    try {
      transfers_of_memory(held.pieces, held.memory, stored, extents);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kIo;
  };
  const Box whole{{0, 0}, {8, 8}};
  EXPECT_EQ(error_kind(Held(whole)), ErrorKind::kIo) << "nothing wrong";
  EXPECT_EQ(error_kind(Held(whole, whole, 1, 1)), ErrorKind::kInternal);
  EXPECT_EQ(error_kind(Held({{0, 0}, {9, 8}}, whole)), ErrorKind::kInternal);
  EXPECT_EQ(error_kind(Held({{0, 0}, {4, 8}}, whole)), ErrorKind::kInternal);
  EXPECT_EQ(error_kind(Held(Box{{0}, {8}})), ErrorKind::kInternal);
  Held without_memory(whole);
  without_memory.memory.resize(3);
  EXPECT_EQ(error_kind(without_memory), ErrorKind::kInternal);
}

TEST(Transfers, RefusesCutsInsideAByte) {
  auto stored = small_checkpoint();
  stored.tensors[0].dtype = DType::kF4;
  const std::uint64_t sizes[] = {16 + 32};
  const ExtentMap extents(whole_files(sizes), 2, 16);
  const Held held(Box{{0, 0}, {8, 3}});
  try {
    transfers_of_memory(held.pieces, held.memory, stored, extents);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(),
                HasSubstr("tensor 'w' (section model): elements [0:8, 0:3] of dtype F4 begin or end inside"));
  }
}

/// Runs with `depth` levels. Each level has gaps in memory and, if `depth` is above 1, in the file.
Runs nested_runs(std::uint32_t depth) {
  Runs runs;
  runs.file = 5;
  runs.local = 9;
  runs.memory_rank = INT32_MAX;
  runs.file_rank = 16383;
  runs.file_begin = 1ULL << 40;
  runs.memory_begin = 17;
  runs.run_bytes = runs.bytes = 6;
  runs.depth = depth;
  for (std::uint32_t l = depth; l-- > 0;) {
    runs.levels[l] = {3, runs.file_end() - runs.file_begin + l, runs.memory_end() - runs.memory_begin + 1};
    if (l + 1 < depth) runs.levels[l] = {3, 3 * runs.levels[l + 1].file_stride, 4 * runs.levels[l + 1].memory_stride};
    runs.bytes *= 3;
  }
  return runs;
}

TEST(RunsOnTheWire, RoundTrip) {
  std::vector<Runs> all;
  base::Bytes bytes;
  std::size_t expected_bytes = 0;
  for (std::uint32_t depth = 0; depth <= Runs::kMaxDepth; ++depth) {
    all.push_back(nested_runs(depth));
    if (depth % 2 != 0) all.back().memory = Memory::kDevice;
    append_runs(bytes, all.back());
    expected_bytes += 48 + 24 * std::size_t{depth};
    ASSERT_EQ(bytes.size(), expected_bytes);
  }
  EXPECT_EQ(parse_runs(bytes, 16383), all);
  EXPECT_TRUE(parse_runs({}, 0).empty());
  EXPECT_THROW(parse_runs(std::span(bytes).first(bytes.size() - 1), 0), Error);
  EXPECT_THROW(parse_runs(std::span(bytes).first(47), 0), Error);
}

TEST(RunsOnTheWire, WhatCannotBeIsRefused) {
  const auto message = [](const std::function<void(Runs&)>& damage) {
    Runs runs = nested_runs(2);
    EXPECT_NO_THROW(check_runs(runs));
    damage(runs);
    base::Bytes bytes;
    append_runs(bytes, runs);
    try {
      parse_runs(bytes, 7);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message([](Runs&) {}), "no error");
  EXPECT_THAT(
      message([](Runs& runs) { runs.bytes += 1; }),
      StartsWith(
          "transfer of 55 bytes from memory of rank 2147483647 to extents of rank 7: its levels do not add up to "
          "these bytes (a bug in Cairn, at plan/runs.cpp:"));
  EXPECT_THAT(message([](Runs& runs) { runs.run_bytes = 0; }), HasSubstr("no bytes"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[1].count = 1; }), HasSubstr("no more than one run"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[1].count = 0; }), HasSubstr("no more than one run"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[0].count = UINT64_MAX / 2; }), HasSubstr("add up"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[1].file_stride = 5; }), HasSubstr("in the file lie in each other"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[0].file_stride = 18; }), HasSubstr("in the file lie in each other"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[1].memory_stride = 5; }), HasSubstr("in memory lie in each other"));
  EXPECT_THAT(message([](Runs& runs) { runs.levels[0].file_stride = 1ULL << 63; }), HasSubstr("in the file"));
  EXPECT_THAT(message([](Runs& runs) { runs.file_begin = UINT64_MAX - 5; }), HasSubstr("in the file"));
  EXPECT_THAT(message([](Runs& runs) { runs.memory_begin = UINT64_MAX - 5; }), HasSubstr("in memory"));
  EXPECT_THAT(message([](Runs& runs) {
                runs.bytes = 6 + (UINT64_MAX / 6 + 1) * 6;  // the product wraps to 6 * count
                runs.levels[0].count = 1ULL << 63;
                runs.levels[1].count = 2;
              }),
              HasSubstr("add up"));

  base::Bytes bytes;
  append_runs(bytes, Runs{});
  EXPECT_THROW(parse_runs(bytes, 0), Error) << "no bytes at all";
  bytes[12] = std::byte{8};
  EXPECT_THROW(parse_runs(bytes, 0), Error) << "a level more than fits";
  bytes[12] = std::byte{255};
  EXPECT_THROW(parse_runs(bytes, 0), Error);
  bytes.clear();
  append_runs(bytes, nested_runs(0));
  bytes[11] = std::byte{0x80};
  EXPECT_THROW(parse_runs(bytes, 0), Error) << "a negative rank";
}

/// Damage is refused, or the decoded runs can be clipped and walked without leaving the box.
TEST(RunsOnTheWire, DamagedRunsAreRefusedOrHarmless) {
  Seeded random("RunsOnTheWire.Damaged");
  SCOPED_TRACE(random.note());
  int refused = 0;
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    base::Bytes bytes;
    append_runs(bytes, nested_runs(static_cast<std::uint32_t>(random.between(0, 3))));
    for (std::uint64_t i = random.between(1, 3); i > 0; --i) {
      bytes[random.between(0, bytes.size() - 1)] ^= static_cast<std::byte>(1U << random.between(0, 7));
    }
    std::vector<Runs> parsed;
    try {
      parsed = parse_runs(bytes, 0);
    } catch (const Error&) {
      ++refused;
      continue;
    }
    ++read;
    for (const Runs& runs : parsed) {
      ASSERT_EQ(runs.bytes_before(runs.file_begin), 0U);
      ASSERT_EQ(runs.bytes_before(runs.file_end()), runs.bytes);
      const std::uint64_t begin = random.between(0, 200) + runs.file_begin;
      const std::uint64_t end = begin + random.between(0, 200);
      std::uint64_t steps = 0;
      for_each_run(runs, begin, end, [&](const plan::Run& run) {
        ASSERT_TRUE(run.file_offset >= begin && run.file_offset + run.length_bytes <= end);
        ++steps;
      });
      ASSERT_LE(steps, 200U);
    }
  }
  EXPECT_GT(refused, 5'000);
  EXPECT_GT(read, 1'000);
}

TEST(BoxIndex, FindsWhatAllPairsFind) {
  Seeded random("BoxIndex.FindsWhatAllPairsFind");
  SCOPED_TRACE(random.note());
  std::uint64_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    auto shape = plan_test::random_shape(random, 3, 12);
    for (auto& n : shape) n = std::max<std::uint64_t>(n, 1);
    std::vector<format::StoredBox> boxes;
    for (const Box& box : plan_test::random_partition(random, shape)) boxes.push_back({0, 0, box});
    if (random.one_in(3)) boxes.push_back({0, 0, {shape, std::vector<std::uint64_t>(shape.size(), 0)}});
    if (shape.empty()) boxes.resize(1);
    std::shuffle(boxes.begin(), boxes.end(), random.engine());
    Box wanted = shard::whole(shape);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      wanted.offset[d] = random.between(0, shape[d] - 1);
      wanted.shape[d] = random.between(1, shape[d] - wanted.offset[d]);
    }
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < boxes.size(); ++i) {
      if (shard::intersect(wanted, boxes[i].box)) expected.push_back(i);
    }
    std::vector<std::uint32_t> got;
    BoxIndex(boxes).for_each_meeting(wanted, [&](std::uint32_t i, const Box& common) {
      EXPECT_EQ(shard::intersect(wanted, boxes[i].box), common);
      got.push_back(i);
    });
    std::sort(got.begin(), got.end());
    ASSERT_EQ(got, expected) << "round " << round;
    found += got.size();
  }
  EXPECT_GT(found, 2000U);
  BoxIndex().for_each_meeting({{0}, {1}}, [](std::uint32_t, const Box&) { FAIL() << "an empty index found a box"; });
}

}  // namespace
}  // namespace cairn::plan
