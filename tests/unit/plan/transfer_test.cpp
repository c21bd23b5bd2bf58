// Transfers: which ranks exchange what, the record on the wire, and the index of stored boxes against all pairs.
#include "plan/transfer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cairn/error.hpp"
#include "layouts.hpp"
#include "plan/box_index.hpp"
#include "seeded.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;
using testing::HasSubstr;

/// One file: 16 bytes of header, then an F32 tensor of 8 x 8.
format::StoredCheckpoint small_checkpoint() {
  format::StoredCheckpoint stored;
  stored.files = {{"model.safetensors", 16 + 256}};
  stored.tensors = {{"model", "w", DType::kF32, {8, 8}, {{0, 16, {{0, 0}, {8, 8}}}}}};
  return stored;
}

TEST(Transfers, OnePerExtentOwnerThatHoldsBytes) {
  const auto stored = small_checkpoint();
  const std::uint64_t sizes[] = {272};
  const ExtentMap extents(whole_files(sizes), 17, 16);  // 16 bytes each: header, then half a row
  const Box column{{0, 5}, {8, 2}};                     // in the second half of each row
  const std::vector<MemoryPart> parts = {{0, 3, column, column}};
  const auto transfers = transfers_of_memory(40, parts, stored, extents);
  ASSERT_EQ(transfers.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(transfers[i].extent_rank, static_cast<int>(2 + 2 * i));
    EXPECT_EQ(transfers[i].memory_rank, 40);
    EXPECT_EQ(transfers[i].local, 3U);
    EXPECT_EQ(transfers[i].region, column);
    EXPECT_EQ(transfers[i].memory_box, column);
    const RunSpace space = run_space(transfers[i], stored);
    const Extent extent = extents.of(transfers[i].extent_rank).at(0);
    EXPECT_EQ(run_bytes(space, extent.begin, extent.end), 8U);
  }
}

TEST(Transfers, OneForAnOwnerWithSeveralExtentsOfTheFile) {
  const auto stored = small_checkpoint();
  std::vector<FileRange> ranges;  // only the cells of the column
  for (std::uint64_t row = 0; row < 8; ++row) ranges.push_back({0, 32 + 32 * row, 48 + 32 * row});
  const ExtentMap extents(ranges, 2, 16);
  const Box column{{0, 5}, {8, 2}};
  const std::vector<MemoryPart> parts = {{0, 0, column, column}};
  const auto transfers = transfers_of_memory(1, parts, stored, extents);
  ASSERT_EQ(transfers.size(), 2U);
  EXPECT_EQ(transfers[0].extent_rank, 0);
  EXPECT_EQ(transfers[1].extent_rank, 1);
  EXPECT_EQ(extents.of(0).size(), 4U);
}

TEST(Transfers, NothingForEmptyParts) {
  const auto stored = small_checkpoint();
  const std::uint64_t sizes[] = {272};
  const ExtentMap extents(whole_files(sizes), 2, 16);
  EXPECT_TRUE(transfers_of_memory(0, {}, stored, extents).empty());
  const Box empty{{8, 0}, {0, 8}};
  const std::vector<MemoryPart> parts = {{0, 0, empty, empty}};
  EXPECT_TRUE(transfers_of_memory(0, parts, stored, extents).empty());
}

TEST(Transfers, RefusesWhatNoExtentHolds) {
  const auto stored = small_checkpoint();
  const ExtentMap extents({{0, 0, 100}}, 2, 4);
  const Box whole{{0, 0}, {8, 8}};
  const std::vector<MemoryPart> parts = {{0, 0, whole, whole}};
  try {
    transfers_of_memory(0, parts, stored, extents);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'w' (section model): 172 of the 256 bytes of elements [0:8, 0:8]"));
  }
}

TEST(Transfers, RefusesPartsThatDoNotFit) {
  const auto stored = small_checkpoint();
  const std::uint64_t sizes[] = {272};
  const ExtentMap extents(whole_files(sizes), 2, 16);
  const auto error_kind = [&](const MemoryPart& part) {
    try {
      transfers_of_memory(0, std::vector<MemoryPart>{part}, stored, extents);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kIo;
  };
  EXPECT_EQ(error_kind({1, 0, {{0, 0}, {8, 8}}, {{0, 0}, {8, 8}}}), ErrorKind::kInternal);
  EXPECT_EQ(error_kind({0, 0, {{0, 0}, {9, 8}}, {{0, 0}, {8, 8}}}), ErrorKind::kInternal);
  EXPECT_EQ(error_kind({0, 0, {{0, 0}, {4, 8}}, {{0, 0}, {8, 8}}}), ErrorKind::kInternal);
  EXPECT_EQ(error_kind({0, 0, {{0}, {8}}, {{0}, {8}}}), ErrorKind::kInternal);
}

TEST(Transfers, RefusesCutsInsideAByte) {
  auto stored = small_checkpoint();
  stored.tensors[0].dtype = DType::kF4;
  const std::uint64_t sizes[] = {16 + 32};
  const ExtentMap extents(whole_files(sizes), 2, 16);
  const Box box{{0, 0}, {8, 3}};
  const std::vector<MemoryPart> parts = {{0, 0, box, box}};
  try {
    transfers_of_memory(0, parts, stored, extents);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(),
                HasSubstr("tensor 'w' (section model): elements [0:8, 0:3] of dtype F4 begin or end inside"));
  }
}

TEST(Records, RoundTrip) {
  Seeded random("Records.RoundTrip");
  SCOPED_TRACE(random.note());
  std::vector<Transfer> transfers;
  base::Bytes bytes;
  for (std::size_t rank = 0; rank <= kMaxRecordRank; ++rank) {
    Transfer t{static_cast<int>(random.between(0, INT32_MAX)), 16383, UINT32_MAX, 7, 9, {}, {}};
    for (std::size_t d = 0; d < rank; ++d) {
      for (auto* v : {&t.memory_box.offset, &t.memory_box.shape, &t.region.offset, &t.region.shape}) {
        v->push_back(random.between(0, UINT64_MAX));
      }
    }
    append_record(bytes, t);
    transfers.push_back(t);
    EXPECT_EQ(bytes.size(), transfers.size() * kTransferRecordBytes);
  }
  EXPECT_EQ(parse_records(bytes), transfers);
  EXPECT_TRUE(parse_records({}).empty());
}

TEST(Records, RefusesWhatItCannotHold) {
  Transfer deep;
  for (auto* v : {&deep.memory_box.offset, &deep.memory_box.shape, &deep.region.offset, &deep.region.shape})
    v->assign(9, 1);
  base::Bytes bytes;
  try {
    append_record(bytes, deep);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("9 dimensions; at most 8"));
  }
  EXPECT_TRUE(bytes.empty());
  append_record(bytes, Transfer{});
  EXPECT_THROW(parse_records(std::span(bytes).first(bytes.size() - 1)), Error);
  bytes[20] = std::byte{9};
  EXPECT_THROW(parse_records(bytes), Error);
  bytes[20] = std::byte{0};
  bytes[3] = std::byte{0x80};
  EXPECT_THROW(parse_records(bytes), Error);
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
