// Bypass runs: the bytes that skip the windows, and their transfer from many ranks at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "io/bypass_runs.hpp"
#include "os/file.hpp"
#include "plan/transfers.hpp"
#include "random.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kLong = BypassRuns::kShortestBytes;
constexpr std::uint64_t kBlockBytes = 3 * kLong / 2;

/// Two files with headers. The first has a tensor whose rows have the length of two long runs; the second has a small
/// tensor and a flat tensor.
struct Layout {
  static constexpr std::uint64_t kHeader = 4096;
  static constexpr std::uint64_t kRows = 7;
  static constexpr std::uint64_t kSmall = 100;
  static constexpr std::uint64_t kFlat = 6 * kLong + 12;

  Layout() {
    stored.files = {{"a", kHeader + kRows * 2 * kLong}, {"b", kHeader + kSmall + kFlat}};
    const auto add = [&](std::string name, std::vector<std::uint64_t> shape, std::uint32_t file, std::uint64_t at) {
      format::StoredTensor tensor;
      tensor.section = "model";
      tensor.name = std::move(name);
      tensor.dtype = DType::kU8;
      tensor.shape = shape;
      tensor.boxes = {{file, at, {std::vector<std::uint64_t>(shape.size(), 0), shape}}};
      stored.tensors.push_back(std::move(tensor));
    };
    add("rows", {kRows, 2 * kLong}, 0, kHeader);
    add("small", {kSmall}, 1, kHeader);
    add("flat", {kFlat}, 1, kHeader + kSmall);
  }

  [[nodiscard]] plan::BlockGrid grid() const {
    std::vector<std::uint64_t> sizes;
    for (const auto& file : stored.files) sizes.push_back(file.size_bytes);
    return {sizes, kBlockBytes};
  }
  [[nodiscard]] BypassRuns runs(const std::vector<plan::Piece>& pieces) const {
    std::vector<plan::MemoryBox> boxes;
    for (const plan::Piece& piece : pieces) {
      boxes.resize(std::max<std::size_t>(boxes.size(), piece.local + 1));
      boxes[piece.local] = {piece.tensor, piece.box, {}};
    }
    return BypassRuns(plan::regions_of_memory(pieces, boxes, stored));
  }

  format::StoredCheckpoint stored;
};

/// A piece that is a whole memory box.
plan::Piece part(std::uint32_t tensor, std::uint32_t local, Box box) { return {tensor, local, 0, std::move(box)}; }

/// Collective: the runs of these parts that bypass the windows.
BypassRuns tiled_runs(comm::Communicator& communicator, const Layout& layout, const std::vector<plan::Piece>& parts) {
  BypassRuns runs = layout.runs(parts);
  keep_tiled_blocks(communicator, layout.grid(), runs);
  return runs;
}

/// A rank's parts in a save. Each pair of ranks has some rows, and each rank of the pair half of the columns (all of
/// them if it is alone). Each rank has a piece of the flat tensor, and rank 0 has the small tensor.
std::vector<plan::Piece> parts_of(int rank, int ranks) {
  const auto r = static_cast<std::uint64_t>(rank);
  const auto n = static_cast<std::uint64_t>(ranks);
  std::vector<plan::Piece> parts;
  const std::uint64_t first_row = Layout::kRows * (r / 2) / ((n + 1) / 2);
  const std::uint64_t last_row = Layout::kRows * (r / 2 + 1) / ((n + 1) / 2);
  const bool is_alone = rank % 2 == 0 && rank + 1 == ranks;
  parts.push_back(
      part(0, 0, {{first_row, is_alone ? 0 : r % 2 * kLong}, {last_row - first_row, is_alone ? 2 * kLong : kLong}}));
  const std::uint64_t begin = Layout::kFlat * r / n;
  parts.push_back(part(2, 1, {{begin}, {Layout::kFlat * (r + 1) / n - begin}}));
  if (rank == 0) parts.push_back(part(1, 2, {{0}, {Layout::kSmall}}));
  return parts;
}

std::vector<base::Bytes> memory_of(const std::vector<plan::Piece>& parts) {
  std::vector<base::Bytes> memory(3);
  for (const plan::Piece& p : parts) {
    memory[p.local].resize(std::accumulate(p.box.shape.begin(), p.box.shape.end(), 1ULL, std::multiplies<>()));
  }
  return memory;
}

std::vector<plan::MemoryBox> boxes_of(std::vector<base::Bytes>& memory) {
  std::vector<plan::MemoryBox> boxes;
  for (base::Bytes& bytes : memory) boxes.push_back({0, {}, bytes});
  return boxes;
}

/// The byte at `at` in the content of a tensor.
std::byte content(std::uint32_t tensor, std::uint64_t at) {
  return static_cast<std::byte>((at * 2654435761U >> 13) + tensor);
}

/// Calls visit(place in the memory of the part, place in the tensor) for each byte of a part.
template <class Visit>
void for_each_byte(const plan::Piece& p, const Visit& visit) {
  const bool is_flat = p.box.shape.size() == 1;
  const std::uint64_t width = is_flat ? p.box.shape[0] : p.box.shape[1];
  const std::uint64_t rows = is_flat ? 1 : p.box.shape[0];
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t i = 0; i < width; ++i) {
      visit(row * width + i, is_flat ? p.box.offset[0] + i : (p.box.offset[0] + row) * 2 * kLong + p.box.offset[1] + i);
    }
  }
}

std::vector<EngineFile> files_in(const test::TempDir& directory, const Layout& layout) {
  std::vector<EngineFile> files;
  for (const auto& file : layout.stored.files) files.push_back({directory / file.name, file.size_bytes});
  return files;
}

void create(const std::vector<EngineFile>& files) {
  for (const EngineFile& file : files) {
    os::File created(file.path, os::OpenMode::kCreateNew);
    created.set_size(file.size_bytes);
  }
}

base::Bytes read_back(const EngineFile& file) {
  base::Bytes bytes(file.size_bytes);
  os::File(file.path, os::OpenMode::kRead).read_at(bytes, 0);
  return bytes;
}

TEST(BypassRuns, BlocksThatLongRunsTileBypassTheWindows) {
  const Layout layout;
  const plan::BlockGrid grid = layout.grid();
  for (const int ranks : {1, 2, 3, 4, 6}) {
    std::vector<std::uint64_t> sums(grid.blocks(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto mine = layout.runs(parts_of(rank, ranks)).fingerprints(grid);
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += mine[c];
    }
    for (std::uint32_t file = 0; file < grid.files(); ++file) {
      for (std::size_t block = grid.block_of(file, 0); block < grid.end_of(file); ++block) {
        const bool is_tiled = sums[block] == BypassRuns::fingerprint_of_tiled(grid.range_of(file, block));
        EXPECT_EQ(is_tiled, block != grid.block_of(file, 0)) << "all but those with a header; block " << block;
      }
    }
  }
}

TEST(BypassRuns, BytesOfNobodyOrOfTwoMakeABlockGoThroughWindows) {
  const Layout layout;
  const plan::BlockGrid grid = layout.grid();
  const std::uint64_t half = Layout::kFlat / 2;
  const auto tiled = [&](const std::vector<plan::Piece>& parts) {
    const auto sums = layout.runs(parts).fingerprints(grid);
    std::vector<std::size_t> blocks;
    for (std::size_t block = grid.block_of(1, 0); block < grid.end_of(1); ++block) {
      if (sums[block] == BypassRuns::fingerprint_of_tiled(grid.range_of(1, block))) blocks.push_back(block);
    }
    return blocks;
  };
  const auto all = tiled({part(2, 0, {{0}, {Layout::kFlat}})});
  ASSERT_EQ(all.size(), grid.end_of(1) - grid.block_of(1, 0) - 1);
  EXPECT_TRUE(tiled({}).empty());
  EXPECT_TRUE(tiled({part(2, 0, {{0}, {Layout::kFlat}}), part(2, 1, {{0}, {Layout::kFlat}})}).empty()) << "replicas";
  // The right number of bytes, but the first half is there twice, and the second half is missing.
  EXPECT_TRUE(tiled({part(2, 0, {{0}, {half}}), part(2, 1, {{0}, {half}})}).empty());
  const auto one_hole = tiled({part(2, 0, {{0}, {half}}), part(2, 1, {{half + 1}, {Layout::kFlat - half - 1}})});
  EXPECT_EQ(one_hole.size(), all.size() - 1);
}

TEST(BypassRuns, ABlockThatAnotherRankWantsInShortRunsGoesThroughWindows) {
  const Layout layout;
  const plan::BlockGrid grid = layout.grid();
  const auto all = part(0, 0, {{0, 0}, {Layout::kRows, 2 * kLong}});
  const auto sums = layout.runs({all}).fingerprints(grid);
  const auto others = layout.runs({part(0, 0, {{3, 8}, {2, 16}})}).fingerprints(grid);  // in rows 3 and 4
  std::size_t tiled_by_one = 0;
  for (std::size_t block = grid.block_of(0, 0); block < grid.end_of(0); ++block) {
    const plan::FileRange range = grid.range_of(0, block);
    const std::uint64_t whole = BypassRuns::fingerprint_of_tiled(range);
    if (sums[block] != whole) continue;
    ++tiled_by_one;
    const std::uint64_t begin = Layout::kHeader + 3 * 2 * kLong + 8;
    const std::uint64_t end = Layout::kHeader + 4 * 2 * kLong + 24;
    const bool is_wanted_twice = range.begin < end && range.end > begin;
    EXPECT_EQ(sums[block] + others[block] != whole, is_wanted_twice) << block;
  }
  EXPECT_EQ(tiled_by_one, grid.end_of(0) - 1);
}

TEST(BypassRuns, ShortRunsOfALargerRegionStay) {
  const Layout layout;
  const auto pieces = [&](const plan::Piece& p) {
    const BypassRuns runs = layout.runs({p});
    std::size_t count = 0;
    for (BypassRuns::Walk& walk : runs.walks()) {
      for (; !walk.done(); ++count) walk.next(~0ULL);
    }
    return count;
  };
  EXPECT_EQ(pieces(part(0, 0, {{0, 0}, {3, kLong}})), 3U);
  EXPECT_EQ(pieces(part(0, 0, {{0, 0}, {3, kLong - 1}})), 0U);
  EXPECT_EQ(pieces(part(0, 0, {{2, 5}, {1, 9}})), 1U) << "a region of one run";
  EXPECT_EQ(pieces(part(0, 0, {{2, 5}, {0, 9}})), 0U);
}

/// Writes and reads on several ranks: blocks that bypass the windows match, and all other blocks stay as they were.
TEST(BypassIo, WritesAndReadsWhatIsTiled) {
  const Layout layout;
  const plan::BlockGrid grid = layout.grid();
  for (const int ranks : {1, 2, 5}) {
    const test::TempDir directory;
    const auto files = files_in(directory, layout);
    create(files);
    std::mutex mutex;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> seen;  // (file, offset) -> bytes
    std::atomic<std::uint64_t> wrong = 0;
    std::atomic<std::uint64_t> compared = 0;
    comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
      const auto parts = parts_of(communicator.rank(), ranks);
      BypassRuns runs = layout.runs(parts);
      const plan::BlockSet blocks = keep_tiled_blocks(communicator, grid, runs);
      auto memory = memory_of(parts);
      for (const auto& p : parts) {
        for_each_byte(p,
                      [&](std::uint64_t at, std::uint64_t place) { memory[p.local][at] = content(p.tensor, place); });
      }
      const auto from = boxes_of(memory);
      write_bypass(communicator, files, runs, {from}, [&](auto file, auto offset, auto data) {
        const std::lock_guard lock(mutex);
        seen[{file, offset}] += data.size();
      });
      communicator.barrier();
      for (auto& box : memory) std::fill(box.begin(), box.end(), std::byte{0});
      const auto to = boxes_of(memory);
      std::uint64_t read = 0;
      BypassFiles reading(files);
      read_bypass(communicator, reading, runs, {to}, [&](auto, auto, auto data) { read += data.size(); });
      for (const auto& p : parts) {
        const auto& box = layout.stored.tensors[p.tensor].boxes[0];
        for_each_byte(p, [&](std::uint64_t at, std::uint64_t place) {
          const bool is_bypass = blocks.contains(grid.block_of(box.file, box.offset_bytes + place));
          const std::byte expected = is_bypass ? content(p.tensor, place) : std::byte{0};
          if (memory[p.local][at] != expected) ++wrong;
          if (is_bypass) ++compared;
          read -= is_bypass ? 1 : 0;
        });
      }
      if (read != 0) ++wrong;
    });
    EXPECT_EQ(wrong, 0U) << ranks;
    EXPECT_GT(compared, 15 * kLong) << "most bytes";
    std::uint64_t bytes = 0;
    for (const auto& [place, count] : seen) bytes += count;
    EXPECT_EQ(bytes, compared) << "each piece is seen once";
    for (std::uint32_t file = 0; file < 2; ++file) {
      const base::Bytes found = read_back(files[file]);
      EXPECT_TRUE(
          std::all_of(found.begin(), found.begin() + kBlockBytes, [](std::byte b) { return b == std::byte{0}; }));
    }
  }
}

TEST(BypassIo, AFailureOnOneRankIsThatOfAllAndLeavesNoLock) {
  const Layout layout;
  const test::TempDir directory;
  const auto files = files_in(directory, layout);
  create(files);
  for (const char* rule :
       {"write:rank=1:after=1:errno=ENOSPC", "fsync:rank=0", "open:rank=2", "write:rank=0:short=5"}) {
    auto faults = std::make_unique<test::Faults>(rule);
    const bool is_harmless = std::string(rule).find("short") != std::string::npos;
    std::atomic<int> failed = 0;
    comm::run_simulated(3, [&](comm::Communicator& communicator) {
      os::set_fault_rank(communicator.rank());
      const auto parts = parts_of(communicator.rank(), 3);
      const BypassRuns runs = tiled_runs(communicator, layout, parts);
      auto memory = memory_of(parts);
      const auto from = boxes_of(memory);
      try {
        write_bypass(communicator, files, runs, {from}, [](auto, auto, auto) {});
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kIo);
        test::expect_one_line(error.what(), {directory.path().string()});
        ++failed;
      }
    });
    faults.reset();
    EXPECT_EQ(failed, is_harmless ? 0 : 3) << rule;
    for (const EngineFile& file : files) {
      os::File again(file.path, os::OpenMode::kWrite);
      EXPECT_TRUE(again.try_lock()) << rule;
    }
  }
}

TEST(BypassIo, AFileThatEndsTooSoonIsAnErrorOnAllRanks) {
  const Layout layout;
  const test::TempDir directory;
  const auto files = files_in(directory, layout);
  create(files);
  std::filesystem::resize_file(files[1].path, files[1].size_bytes - 1);
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    const auto parts = parts_of(communicator.rank(), 3);
    const BypassRuns runs = tiled_runs(communicator, layout, parts);
    auto memory = memory_of(parts);
    const auto to = boxes_of(memory);
    BypassFiles reading(files);
    test::expect_error(ErrorKind::kIo, [&] { read_bypass(communicator, reading, runs, {to}, [](auto, auto, auto) {}); },
                       {files[1].path.string(), "ends at byte"});
  });
}

TEST(BypassIo, MemoryThatIsTooSmallIsRefused) {
  const Layout layout;
  const test::TempDir directory;
  const auto files = files_in(directory, layout);
  create(files);
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    const BypassRuns runs = layout.runs({part(2, 1, {{0}, {Layout::kFlat}})});
    base::Bytes memory(Layout::kFlat - 1);
    std::vector<plan::MemoryBox> from = {{}, {0, {}, memory}};
    const auto write = [&] { write_bypass(communicator, files, runs, {from}, [](auto, auto, auto) {}); };
    test::expect_error(ErrorKind::kInternal, write, {"memory box 1, which has"});
    memory.resize(Layout::kFlat);
    from[1] = {0, {}, memory, Memory::kDevice};
    test::expect_error(ErrorKind::kInternal, write,
                       {"memory box 1 is in device memory, and there is nothing to copy it with"});
  });
}

TEST(DirectRuns, AreLongAndKeepTheirPlaceInThePage) {
  constexpr std::uint64_t kPage = BypassRuns::kPageBytes;
  constexpr std::uint64_t kLongest = BypassRuns::kShortestDirectBytes;
  const auto region = [&](std::uint32_t local, std::uint64_t file_begin, std::uint64_t memory_begin,
                          std::uint64_t run_bytes, std::uint64_t runs, std::uint64_t file_stride,
                          std::uint64_t memory_stride) {
    plan::Runs made;
    made.file = 3;
    made.local = local;
    made.file_begin = file_begin;
    made.memory_begin = memory_begin;
    made.run_bytes = run_bytes;
    made.bytes = run_bytes * runs;
    if (runs > 1) {
      made.depth = 1;
      made.levels[0] = {runs, file_stride, memory_stride};
    }
    return made;
  };
  const std::uint64_t far = 1ULL << 32;
  const BypassRuns runs(
      {region(0, 1'000, 40, kLongest, 1, 0, 0), region(1, far, 0, kLongest - 1, 1, 0, 0),  // region 1 is too short
       region(2, 2 * far, 0, kLongest, 2, 3 * kLongest + kPage, kLongest),                 // both runs are long enough
       region(3, 3 * far, 0, kLongest, 2, 3 * kLongest + kPage + 1, kLongest),             // the second run is not
       region(4, 1'000 + kLongest, 8, kLongest + 5, 1, 0, 0)},                             // right after region 0
      BypassWay::kDirect);
  EXPECT_EQ(runs.bytes(), 4 * kLongest + 5);
  EXPECT_EQ(runs.files(), std::vector<std::uint32_t>{3});
  const auto boxes = runs.boxes_in_files();
  ASSERT_EQ(boxes.size(), 5U);
  EXPECT_TRUE(boxes[0] && boxes[2] && boxes[4] && !boxes[1] && !boxes[3]);
  EXPECT_EQ(boxes[0]->offset, 960U);
  EXPECT_EQ(boxes[4]->offset, 1'000 + kLongest - 8);

  // Memory in which box 4 follows box 0, as in the file, so that both make one operation.
  base::Bytes memory(40 + 4 * kLongest);
  std::vector<plan::MemoryBox> held(5);
  held[0].bytes = std::span(memory).first(40 + kLongest);
  held[4].bytes = std::span(memory).subspan(40 + kLongest - 8, 8 + kLongest + 5);
  held[2].bytes = std::span(memory).last(2 * kLongest);
  const std::vector<WriteOp> whole = runs.write_ops(held, 1ULL << 40);
  ASSERT_EQ(whole.size(), 3U);
  EXPECT_EQ(whole[0].offset, 1'000U);
  EXPECT_EQ(whole[0].data.data(), memory.data() + 40);
  EXPECT_EQ(whole[0].data.size(), 2 * kLongest + 5);
  EXPECT_EQ(whole[2].offset, 2 * far + 3 * kLongest + kPage);
  std::uint64_t bytes = 0;
  for (const WriteOp& op : runs.write_ops(held, 16 * kPage)) {
    EXPECT_TRUE(op.offset % kPage == 0 || op.offset == 1'000) << op.offset;
    bytes += op.data.size();
  }
  EXPECT_EQ(bytes, runs.bytes());
  held[2].bytes = {};
  test::expect_error(ErrorKind::kInternal, [&] { static_cast<void>(runs.write_ops(held, kPage)); },
                     {"outside of its memory box"});
}

}  // namespace
}  // namespace cairn::io
