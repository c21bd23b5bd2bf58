// Assignment of blocks to read back: every block once and, given even shares, not by the rank that writes it, nor by a
// rank of the writer's node if there are several nodes. Also the choice of samples, and files whose bytes differ.
#include "checkpoint/read_back.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "format/crc32c.hpp"
#include "io/whole_files.hpp"
#include "opening/written_blocks.hpp"
#include "temp_dir.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kBlock = 4096;

format::BlockTable table_of(const std::vector<std::uint64_t>& sizes) {
  format::BlockTable table;
  table.block_bytes = kBlock;
  for (const std::uint64_t size : sizes) {
    table.files.push_back({"f", size, std::vector<std::uint32_t>((size + kBlock - 1) / kBlock)});
  }
  return table;
}

/// (file, block) -> reading rank; fails if a block is read twice.
std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> readers(const format::BlockTable& table, ReadBack how,
                                                                         std::uint64_t step, std::uint64_t ranks,
                                                                         std::uint64_t ranks_of_node) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> readers;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    for (const plan::Extent& extent : read_back_extents(table, how, step, ranks, rank, ranks_of_node)) {
      EXPECT_EQ(extent.begin % kBlock, 0U);
      EXPECT_LE(extent.end, table.files[extent.file].size_bytes);
      for (std::uint64_t at = extent.begin; at < extent.end; at += kBlock) {
        EXPECT_TRUE(readers.emplace(std::pair(extent.file, at / kBlock), rank).second);
      }
    }
  }
  return readers;
}

TEST(ReadBack, AFileOfTheRightSizeWithOtherBytesIsRefused) {
  const test::TempDir dir;
  test::write_file(dir / "f", "tokens");
  const auto read_back = [&](std::string_view written) {
    io::read_back_file(dir / "f", written.size(), format::crc32c(base::as_bytes(written)));
  };
  EXPECT_NO_THROW(read_back("tokens"));
  for (const char* written : {"tokenS", "token"}) {
    test::expect_error(ErrorKind::kIntegrity, [&] { read_back(written); }, {"reads back otherwise", "6 bytes"});
  }
}

TEST(ReadBack, AllReadsEveryBlockOnceByAnotherRankOfAnotherNode) {
  const auto table = table_of({100 * kBlock + 17, 0, kBlock, 55 * kBlock, 1});
  const std::uint64_t blocks = 101 + 0 + 1 + 55 + 1;
  for (const std::uint64_t ranks : {1, 2, 3, 7, 8, 500}) {
    for (const std::uint64_t of_node : {std::uint64_t{1}, std::uint64_t{4}, ranks}) {
      const auto mine = readers(table, ReadBack::kAll, 5, ranks, of_node);
      EXPECT_EQ(mine.size(), blocks);
      const plan::ExtentMap even(
          plan::whole_files(std::vector<std::uint64_t>{100 * kBlock + 17, 0, kBlock, 55 * kBlock, 1}),
          static_cast<int>(ranks), kBlock);
      for (const auto& [block, reader] : mine) {
        const std::uint64_t at = block.second * kBlock;
        const auto writer = static_cast<std::uint64_t>(even.covering(block.first, at, at + 1).at(0).rank);
        if (ranks > 1) {
          EXPECT_NE(writer, reader);
        }
        if (ranks % of_node == 0 && of_node < ranks) {
          EXPECT_NE(writer / of_node, reader / of_node);
        }
      }
    }
  }
  EXPECT_TRUE(readers(table, ReadBack::kOff, 5, 3, 1).empty());
}

TEST(ReadBack, ASampleHasBothEndsOfEachFileAndASixteenthThatChangesWithTheStep) {
  const std::vector<std::uint64_t> sizes = {20'000 * kBlock + 5, kBlock, 2 * kBlock, 30'000 * kBlock};
  const auto table = table_of(sizes);
  std::set<std::pair<std::uint32_t, std::uint64_t>> seen;
  for (const std::uint64_t step : {0, 1, 2, 1000}) {
    const auto sample = readers(table, ReadBack::kSample, step, 3, 3);
    for (std::uint32_t file = 0; file < sizes.size(); ++file) {
      EXPECT_TRUE(sample.contains({file, 0}));
      EXPECT_TRUE(sample.contains({file, (sizes[file] - 1) / kBlock}));
    }
    EXPECT_NEAR(static_cast<double>(sample.size()) / 50'000, 1.0 / kSampledBlocks, 0.005);
    for (const auto& [block, rank] : sample) seen.insert(block);
    EXPECT_EQ(sample, readers(table, ReadBack::kSample, step, 3, 3));
  }
  EXPECT_GT(seen.size(), 50'000U / kSampledBlocks * 3);
}

}  // namespace
}  // namespace cairn::checkpoint
