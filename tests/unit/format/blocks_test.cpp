// The block table: a golden file written without Cairn, pieces in any order on any number of ranks, and damaged bytes.
#include "format/blocks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <random>

#include "format/crc32c.hpp"
#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

base::Bytes content(std::size_t size, std::size_t seed) {
  base::Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * i + 31 * i + seed) % 251);
  return out;
}

/// The data files that tests/data/golden/make_golden.py describes.
struct GoldenFiles {
  std::vector<std::string> names = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                    "optimizer.safetensors", "poids-\u00e9.safetensors"};
  std::vector<base::Bytes> bytes = {content(1000, 1), content(1024, 2), content(777, 3), {}};
  std::vector<std::uint64_t> sizes = {1000, 1024, 777, 0};
  static constexpr std::uint64_t kBlock = 256;
};

base::Bytes golden_blocks() {
  const std::string text = read_file(test_data("golden/cairn.blocks"));
  const auto bytes = base::as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// Corrects the stored length, and the checksum at the end, after a change of the bytes.
void reseal(base::Bytes& bytes) {
  for (std::size_t i = 0; i < 8; ++i) bytes[40 + i] = static_cast<std::byte>(bytes.size() >> (8 * i) & 0xff);
  const std::uint32_t crc = blocks_layout::masked(crc32c(std::span(bytes).first(bytes.size() - 4)));
  for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(crc >> (8 * i) & 0xff);
}

void put(base::Bytes& bytes, std::size_t at, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

void expect_refused(base::Bytes bytes, std::string_view part) {
  expect_error(ErrorKind::kFormat, [&] { decode_blocks(bytes, "c/cairn.blocks"); }, {"c/cairn.blocks: ", part});
}

TEST(Blocks, EncodesTheGoldenFile) {
  const GoldenFiles files;
  BlockAccumulator accumulator(files.sizes, GoldenFiles::kBlock);
  for (std::uint32_t f = 0; f < 4; ++f) accumulator.add(f, 0, files.bytes[f]);
  EXPECT_EQ(accumulator.raw_words().size(), 12u);
  const BlockTable table = accumulator.finish(files.names);
  EXPECT_EQ(encode_blocks(table), golden_blocks());
}

TEST(Blocks, DecodesTheGoldenFile) {
  const GoldenFiles files;
  const BlockTable table = decode_blocks(golden_blocks(), "p");
  EXPECT_EQ(table.block_bytes, 256u);
  ASSERT_EQ(table.files.size(), 4u);
  std::size_t compared = 0;
  for (std::size_t f = 0; f < 4; ++f) {
    EXPECT_EQ(table.files[f].name, files.names[f]);
    EXPECT_EQ(table.files[f].size_bytes, files.sizes[f]);
    for (std::size_t i = 0; i < table.files[f].crcs.size(); ++i, ++compared) {
      const std::size_t begin = i * 256;
      const auto block = std::span(files.bytes[f]).subspan(begin, std::min<std::size_t>(256, files.sizes[f] - begin));
      EXPECT_EQ(table.files[f].crcs[i], crc32c(block));
    }
    EXPECT_EQ(file_digest(table.files[f], table.block_bytes), crc32c(files.bytes[f]));
  }
  EXPECT_EQ(compared, 12u);
  EXPECT_EQ(encode_blocks(table), golden_blocks());
}

TEST(Blocks, AreFoundWhereTheyLie) {
  const BlockTable table = decode_blocks(golden_blocks(), "p");
  for (const BlockChecks checks : {BlockChecks::kAll, BlockChecks::kCounts}) {
    const BlockRows rows(golden_blocks(), "p", checks);
    const BlockRows copy = rows;
    EXPECT_EQ(copy.block_bytes(), table.block_bytes);
    EXPECT_EQ(copy.bytes(), golden_blocks());
    ASSERT_EQ(copy.files().size(), table.files.size());
    std::size_t compared = 0;
    for (std::size_t f = 0; f < table.files.size(); ++f) {
      const std::vector<std::uint32_t>& crcs = table.files[f].crcs;
      EXPECT_EQ(copy.files()[f].name(), table.files[f].name);
      EXPECT_EQ(copy.files()[f].size_bytes(), table.files[f].size_bytes);
      EXPECT_EQ(copy.files()[f].unpacked().crcs, crcs);
      for (std::size_t i = 0; i < crcs.size(); ++i, ++compared) EXPECT_EQ(copy.files()[f].crc(i), crcs[i]);
      EXPECT_THROW((void)copy.files()[f].crc(crcs.size()), std::out_of_range);
    }
    EXPECT_EQ(compared, 12u);
  }
  base::Bytes damaged = golden_blocks();
  damaged.back() ^= std::byte{1};
  EXPECT_THROW(BlockRows(damaged, "p"), Error);
  EXPECT_NO_THROW(BlockRows(damaged, "p", BlockChecks::kCounts));
  damaged.pop_back();
  EXPECT_THROW(BlockRows(damaged, "p", BlockChecks::kCounts), Error);
}

TEST(Blocks, HaveAChecksumThatTellsTablesApart) {
  BlockTable table = decode_blocks(golden_blocks(), "p");
  const std::uint32_t before = crc32c(encode_blocks(table));
  table.files[0].crcs[0] ^= 1;
  EXPECT_NE(crc32c(encode_blocks(table)), before);
}

TEST(Blocks, EncodesNoFiles) {
  const base::Bytes bytes = encode_blocks({});
  EXPECT_EQ(bytes.size(), 52u);
  EXPECT_TRUE(decode_blocks(bytes, "p").files.empty());
  EXPECT_EQ(decode_blocks(bytes, "p").block_bytes, kDefaultBlockBytes);
}

TEST(Blocks, AddsPiecesOfManyRanksInAnyOrder) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const GoldenFiles files;
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t block = 1 + random() % 1200;
    const std::size_t ranks = 1 + random() % 7;
    std::vector<BlockAccumulator> accumulators(ranks, BlockAccumulator(files.sizes, block));
    struct Piece {
      std::uint32_t file;
      std::size_t offset, count;
    };
    std::vector<Piece> pieces;
    for (std::uint32_t f = 0; f < 4; ++f) {
      for (std::size_t at = 0; at < files.sizes[f];) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 700, files.sizes[f] - at);
        pieces.push_back({f, at, count});
        at += count;
      }
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const Piece& piece : pieces) {
      accumulators[random() % ranks].add(piece.file, piece.offset,
                                         std::span(files.bytes[piece.file]).subspan(piece.offset, piece.count));
    }
    auto whole = accumulators[0].raw_words();
    for (std::size_t r = 1; r < ranks; ++r) {
      const auto words = accumulators[r].raw_words();
      ASSERT_EQ(words.size(), whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i) whole[i] ^= words[i];
    }
    const BlockTable table = accumulators[0].finish(files.names);
    for (std::size_t f = 0; f < 4; ++f) {
      ASSERT_EQ(file_digest(table.files[f], block), crc32c(files.bytes[f])) << "block " << block << " file " << f;
    }
  }
}

TEST(Blocks, RefusesPiecesOutsideTheFile) {
  const GoldenFiles files;
  BlockAccumulator accumulator(files.sizes, 256);
  const base::Bytes piece(10);
  expect_error(ErrorKind::kInternal, [&] { accumulator.add(4, 0, piece); }, {"file number 4"});
  expect_error(ErrorKind::kInternal, [&] { accumulator.add(0, 991, piece); }, {"offset 991"});
  expect_error(ErrorKind::kInternal, [&] { accumulator.add(0, ~0ULL, piece); }, {"offset"});
  expect_error(ErrorKind::kInternal, [&] { accumulator.add(3, 0, piece); }, {"0 bytes"});
  expect_error(ErrorKind::kInternal, [&] { static_cast<void>(accumulator.finish(std::vector<std::string>(3))); },
               {"3 names for 4 files"});
  expect_error(ErrorKind::kUsage, [&] { BlockAccumulator(files.sizes, 0); }, {"block size"});
  accumulator.add(0, 990, piece);
  accumulator.add(0, 1000, {});
}

TEST(Blocks, RefusesToEncodeWhatItCouldNotRead) {
  const auto encode = [](BlockTable table) { return [table] { encode_blocks(table); }; };
  expect_error(ErrorKind::kInternal, encode({256, {{"a", 257, {1}}}}), {"file 'a' of 257 bytes has 1 checksums"});
  expect_error(ErrorKind::kInternal, encode({0, {{"a", 0, {}}}}), {"blocks of 0"});
  expect_error(ErrorKind::kInternal, encode({256, {{"a", 0, {}}, {"a", 0, {}}}}), {"'a' appears twice"});
  expect_error(ErrorKind::kFormat, encode({256, {{"../a", 0, {}}}}), {"'../a'"});
  expect_error(ErrorKind::kInternal, [] { file_digest({"a", 10, {}}, 4); }, {"'a'"});
}

TEST(Blocks, RefusesEveryFlippedBitAndEveryCut) {
  const base::Bytes golden = golden_blocks();
  for (std::size_t at = 0; at < golden.size(); ++at) {
    base::Bytes flipped = golden;
    flipped[at] ^= std::byte{0x10};
    expect_refused(flipped, "");
    expect_refused(base::Bytes(golden.begin(), golden.begin() + static_cast<std::ptrdiff_t>(at)), "");
  }
  base::Bytes longer = golden;
  longer.push_back(std::byte{0});
  expect_refused(longer, "it is cut off or damaged");
}

TEST(Blocks, NamesWhatIsWrong) {
  const base::Bytes golden = golden_blocks();
  const auto changed = [&](std::size_t at, std::uint64_t value, std::size_t count, std::string_view part) {
    SCOPED_TRACE(part);
    base::Bytes bytes = golden;
    put(bytes, at, value, count);
    reseal(bytes);
    expect_refused(bytes, part);
  };
  changed(0, 'X', 1, "magic");
  changed(8, 2, 4, "version 2 is not known");
  changed(12, 40, 4, "header length 40");
  changed(12, 50, 4, "header length 50");
  changed(12, 0xfffffff8, 4, "header length 4294967288");
  changed(16, 4, 4, "flags 0x4 are not known");
  changed(24, 0, 8, "block size is 0");
  changed(32, ~0ULL, 8, "18446744073709551615 files");
  changed(32, 3, 8, "bytes follow the last of its 3 files");
  changed(32, 5, 8, "cut off within");
  changed(48, 0xffffffff, 4, "cut off within a file name");
  changed(48, 31, 4, "padding");
  changed(52, 1, 4, "reserved field");
  changed(56, 1025, 8, "4 blocks are listed");
  changed(64, ~0ULL, 8, "18446744073709551615 blocks are listed");
  changed(24, 1, 8, "make 1000");
  changed(72, '/', 1, "is absolute");
  changed(72, 0xff, 1, "not UTF-8");
  base::Bytes twice = golden;
  twice[120 + 24 + 10] = std::byte{'1'};  // model-00001 and model-00002 are one digit apart
  reseal(twice);
  expect_refused(twice, "appears twice");
  base::Bytes damaged = golden;
  damaged[300] ^= std::byte{1};
  expect_refused(damaged, "its own checksum is");
}

TEST(Blocks, ReadsALongerHeaderAndFlagsThatMayBeIgnored) {
  base::Bytes bytes = golden_blocks();
  bytes.insert(bytes.begin() + 48, 16, std::byte{0xaa});
  put(bytes, 12, 64, 4);
  put(bytes, 20, 0xffff, 4);
  reseal(bytes);
  EXPECT_EQ(decode_blocks(bytes, "p").files.size(), 4u);
}

TEST(Blocks, TakesNoMemoryForCountsThatTheBytesCannotHold) {
  BlockTable table;
  table.block_bytes = 1;
  table.files = {{"a", 3, {1, 2, 3}}};
  base::Bytes bytes = encode_blocks(table);
  put(bytes, 56, ~0ULL, 8);  // size and count agree, at 2^64 - 1
  put(bytes, 64, ~0ULL, 8);
  reseal(bytes);
  expect_refused(bytes, "18446744073709551615 blocks are listed");
}

}  // namespace
}  // namespace cairn::format::testing
