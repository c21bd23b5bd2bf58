// The list of requirements on every engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <string>

#include "comm/mpi.hpp"
#include "engine_conformance.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"
#include "random.hpp"
#include "soft_limit.hpp"

namespace cairn::test {
namespace {

using io::EngineFile;
using testing::HasSubstr;

std::vector<EngineFile> files_of(const EngineCase& c, const std::vector<std::uint64_t>& sizes) {
  std::vector<EngineFile> files;
  for (std::size_t f = 0; f < sizes.size(); ++f) {
    files.push_back({c.directory / ("model-" + std::to_string(f) + ".safetensors"), sizes[f]});
  }
  return files;
}

std::uint64_t bytes_of(const std::vector<plan::FileRange>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const plan::FileRange& range) { return sum + range.end - range.begin; });
}

/// Writes with the engine; reads with plain calls, and with the engine on half of the ranks.
void write_and_read_back(const EngineCase& c, const std::vector<EngineFile>& files,
                         const std::vector<plan::FileRange>& ranges, std::uint64_t block_bytes,
                         std::uint64_t window_bytes) {
  const int ranks = c.communicator.size();
  write_files(c, files, plan::ExtentMap(ranges, ranks, block_bytes), window_bytes);
  EXPECT_EQ(compare_by_other_means(c, files, ranges), bytes_of(ranges));
  EXPECT_EQ(read_and_compare(c, files, plan::ExtentMap(ranges, (ranks + 1) / 2, block_bytes), window_bytes),
            bytes_of(ranges));
}

void random_files(const EngineCase& c) {
  auto random = make_random(100);
  for (int repeat = 0; repeat < 6; ++repeat) {
    std::vector<std::uint64_t> sizes(uniform(random, 1, 9));
    for (auto& size : sizes) size = uniform(random, 0, 4) == 0 ? uniform(random, 0, 2) : uniform(random, 1, 200'000);
    auto files = files_of(c, sizes);
    for (auto& file : files) file.path += "." + std::to_string(repeat);
    const std::uint64_t block_bytes = uniform(random, 1, 20'000);
    write_and_read_back(c, files, plan::whole_files(sizes), block_bytes, block_bytes * uniform(random, 1, 8));
  }
}

void awkward_sizes(const EngineCase& c) {
  const std::vector<std::uint64_t> sizes = {0, 1, 0, 4097, 4096, 3, 0};
  write_and_read_back(c, files_of(c, sizes), plan::whole_files(sizes), 4096, 4096);
}

void parts_of_files(const EngineCase& c) {
  auto random = make_random(101);
  const std::vector<std::uint64_t> sizes = {100'000, 50'001, 70'000};
  std::vector<plan::FileRange> ranges;
  for (std::uint32_t file = 0; file < 3; ++file) {
    for (std::uint64_t at = uniform(random, 0, 3000); at + 500 < sizes[file]; at += uniform(random, 1000, 9000)) {
      ranges.push_back({file, at, at + uniform(random, 1, 500)});
    }
  }
  ranges = plan::widen_to_blocks(ranges, sizes, 512);
  write_and_read_back(c, files_of(c, sizes), ranges, 512, 4096);  // windows with several parts of one file
}

/// As on nodes with local disks: an unwanted file has no path on ranks that cannot see it.
void files_that_nobody_sees(const EngineCase& c) {
  const std::vector<std::uint64_t> sizes = {3000, 10'000, 70'000};
  auto files = files_of(c, sizes);
  write_files(c, files, plan::ExtentMap(plan::whole_files(sizes), c.communicator.size(), 4096), 8192);
  files[0].path.clear();
  const std::vector<plan::FileRange> seen = {{1, 0, sizes[1]}, {2, 0, sizes[2]}};
  EXPECT_EQ(read_and_compare(c, files, plan::ExtentMap(seen, c.communicator.size(), 4096), 8192), bytes_of(seen));
}

void more_files_than_may_be_open(const EngineCase& c) {
  const int ranks = c.communicator.size();
  const bool are_threads = comm::native_handle(c.communicator) == MPI_COMM_NULL;
  if (are_threads && ranks > 1) return;  // threads would share one limit
  const std::vector<std::uint64_t> sizes(static_cast<std::size_t>(12 * ranks), 5000);
  const auto files = files_of(c, sizes);
  const std::vector<plan::FileRange> ranges = plan::whole_files(sizes);
  const plan::ExtentMap extents(ranges, ranks, 4096);
  if (c.engine == "mpiio") {
    const SoftLimit limit = descriptors_left(12);
    const std::string text =
        common_error(c.communicator, ErrorKind::kUsage, [&] { c.make()->open_for_write(files, extents); });
    EXPECT_THAT(text, HasSubstr("raise the limit (ulimit -n)"));
    EXPECT_FALSE(os::exists(files.front().path));
    return;
  }
  {
    const SoftLimit limit = descriptors_left(12);
    os::Recording recording;
    write_files(c, files, extents, 16'384);  // several files per window
    std::map<std::filesystem::path, std::string> last;
    for (const os::Operation& done : recording.take()) {
      if (done.name == "write" || done.name == "fsync") last[done.path] = done.name;
    }
    EXPECT_GE(last.size(), 12U);
    for (const auto& [path, name] : last) EXPECT_EQ(name, "fsync") << "something was written after it to " << path;
  }
  EXPECT_EQ(compare_by_other_means(c, files, ranges), bytes_of(ranges));
  const SoftLimit limit = descriptors_left(12);
  EXPECT_EQ(read_and_compare(c, files, extents, 16'384), bytes_of(ranges));
}

void no_files(const EngineCase& c) {
  const plan::ExtentMap nothing({}, c.communicator.size(), 4096);
  const auto engine = c.make();
  engine->open_for_write({}, nothing);
  engine->write_round({});
  engine->sync();
  engine->close();
}

void rounds_without_bytes(const EngineCase& c) {
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{10'000}), c.communicator.size(), 1000);
  const auto files = files_of(c, {10'000});
  const auto engine = c.make();
  engine->open_for_write(files, extents);
  for (int round = 0; round < 3; ++round) engine->write_round({});
  engine->sync();
  engine->close();
  if (c.communicator.rank() == 0) {
    EXPECT_EQ(os::file_size(files[0].path), 10'000U);
  }
}

void edges_of_a_5_gib_file(const EngineCase& c) {
  const std::uint64_t edge = 1ULL << 31;
  const std::uint64_t size = 5 * (edge / 2) + 123;  // a little more than 5 GiB
  const std::vector<plan::FileRange> ranges = {{0, 0, 5000},
                                               {0, edge - 70'000, edge + 70'000},
                                               {0, 2 * edge - 70'000, 2 * edge + 70'000},
                                               {0, size - 100, size}};
  EngineCase sparse = c;
  sparse.options.reserve_space = false;
  write_and_read_back(sparse, files_of(c, {size}), ranges, 10'000, 50'000);
}

void an_existing_file_is_an_error(const EngineCase& c) {
  const auto files = files_of(c, {100, 200, 300});
  if (c.communicator.rank() == 0) os::File(files[1].path, os::OpenMode::kCreateNew).set_size(7);
  c.communicator.barrier();
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{100, 200, 300}), c.communicator.size(),
                                10);
  const auto engine = c.make();
  const std::string text =
      common_error(c.communicator, ErrorKind::kIo, [&] { engine->open_for_write(files, extents); });
  EXPECT_THAT(text, HasSubstr("model-1.safetensors"));
  EXPECT_THAT(text, HasSubstr("File exists"));
  if (c.communicator.rank() == 0) {
    EXPECT_EQ(os::file_size(files[1].path), 7U) << "it must stay as it was";
  }
}

void a_missing_file_is_an_error(const EngineCase& c) {
  const auto files = files_of(c, {100, 200});
  if (c.communicator.rank() == 0) os::File(files[0].path, os::OpenMode::kCreateNew).set_size(100);
  c.communicator.barrier();
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{100, 200}), c.communicator.size(), 10);
  const auto engine = c.make();
  const std::string text =
      common_error(c.communicator, ErrorKind::kNotFound, [&] { engine->open_for_read(files, extents); });
  EXPECT_THAT(text, HasSubstr("model-1.safetensors"));
}

void a_file_of_another_size_is_an_error(const EngineCase& c) {
  const std::vector<std::uint64_t> sizes = {5000, 60'000};
  const plan::ExtentMap extents(plan::whole_files(sizes), c.communicator.size(), 1000);
  const auto files = files_of(c, sizes);
  write_files(c, files, extents, 10'000);
  for (const std::uint64_t size : {std::uint64_t{59'999}, std::uint64_t{60'001}}) {
    if (c.communicator.rank() == 0) os::File(files[1].path, os::OpenMode::kWrite).set_size(size);
    c.communicator.barrier();
    const auto engine = c.make();
    const std::string text =
        common_error(c.communicator, ErrorKind::kIntegrity, [&] { engine->open_for_read(files, extents); });
    EXPECT_THAT(text, HasSubstr("model-1.safetensors"));
    EXPECT_THAT(text, HasSubstr(std::to_string(size) + " bytes, expected 60000"));
  }
}

void a_file_cut_short_while_open_is_an_error(const EngineCase& c) {
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{60'000}), c.communicator.size(), 1000);
  const auto files = files_of(c, {60'000});
  write_files(c, files, extents, 100'000);
  const auto engine = c.make();
  engine->open_for_read(files, extents);
  if (c.communicator.rank() == 0) os::File(files[0].path, os::OpenMode::kWrite).set_size(59'500);
  c.communicator.barrier();
  base::Bytes buffer(60'000);
  std::vector<io::ReadOp> ops;
  for (const plan::Extent& extent : extents.of(c.communicator.rank())) {
    ops.push_back({0, extent.begin, std::span(buffer).first(extent.end - extent.begin)});
  }
  const std::string text = common_error(c.communicator, ErrorKind::kIo, [&] { engine->read_round(ops); });
  EXPECT_THAT(text, HasSubstr("model-0.safetensors"));
}

void a_file_that_changed_size_is_found_by_sync(const EngineCase& c) {
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{60'000}), c.communicator.size(), 1000);
  const auto files = files_of(c, {60'000});
  const auto engine = c.make();
  engine->open_for_write(files, extents);
  if (c.communicator.rank() == 0) os::File(files[0].path, os::OpenMode::kWrite).set_size(60'001);
  c.communicator.barrier();
  const std::string text = common_error(c.communicator, ErrorKind::kIo, [&] { engine->sync(); });
  EXPECT_THAT(text, HasSubstr("model-0.safetensors"));
  EXPECT_THAT(text, HasSubstr("60001 bytes, expected 60000"));
}

void wrong_operations_are_refused(const EngineCase& c) {
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{1000, 1000}), c.communicator.size(), 1000);
  const base::Bytes data(600);
  const std::vector<std::vector<io::WriteOp>> wrong = {
      {{2, 0, data}},                 // no such file
      {{0, 500, data}},               // past its end
      {{1, 0, data}, {0, 0, data}},   // files descend
      {{0, 0, data}, {0, 300, data}}  // overlap
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    auto files = files_of(c, {1000, 1000});
    for (auto& file : files) file.path += "." + std::to_string(i);
    const auto engine = c.make();
    engine->open_for_write(files, extents);
    const bool guilty = c.communicator.rank() == 0;
    common_error(c.communicator, ErrorKind::kInternal, [&] {
      engine->write_round(guilty ? std::span<const io::WriteOp>(wrong[i]) : std::span<const io::WriteOp>());
    });
  }
}

void works_again_after_an_error(const EngineCase& c) {
  an_existing_file_is_an_error(c);
  const std::vector<std::uint64_t> sizes = {30'000, 40'000};
  auto files = files_of(c, sizes);
  for (auto& file : files) file.path += ".again";
  const plan::ExtentMap extents(plan::whole_files(sizes), c.communicator.size(), 1000);
  write_files(c, files, extents, 5000);
  EXPECT_EQ(compare_by_other_means(c, files, plan::whole_files(sizes)), 70'000U);
}

void takes_a_colon_in_a_path(const EngineCase& c) {
  const std::vector<std::uint64_t> sizes = {3000};
  std::vector<EngineFile> files = {{c.directory / "model 12:30:45.safetensors", 3000}};
  write_and_read_back(c, files, plan::whole_files(sizes), 100, 1000);
}

void many_files_for_few_ranks(const EngineCase& c) {
  const std::vector<std::uint64_t> sizes(60, 777);
  write_and_read_back(c, files_of(c, sizes), plan::whole_files(sizes), 100, 5000);
}

}  // namespace

const std::vector<EngineTest>& engine_tests() {
  static const std::vector<EngineTest> tests = {
      {"RandomFiles", random_files},
      {"AwkwardSizes", awkward_sizes},
      {"PartsOfFiles", parts_of_files},
      {"FilesThatNobodySees", files_that_nobody_sees},
      {"MoreFilesThanMayBeOpen", more_files_than_may_be_open},
      {"NoFiles", no_files},
      {"RoundsWithoutBytes", rounds_without_bytes},
      {"EdgesOfA5GibFile", edges_of_a_5_gib_file},
      {"AnExistingFileIsAnError", an_existing_file_is_an_error},
      {"AMissingFileIsAnError", a_missing_file_is_an_error},
      {"AFileOfAnotherSizeIsAnError", a_file_of_another_size_is_an_error},
      {"AFileCutShortWhileOpenIsAnError", a_file_cut_short_while_open_is_an_error},
      {"AFileThatChangedSizeIsFoundBySync", a_file_that_changed_size_is_found_by_sync},
      {"WrongOperationsAreRefused", wrong_operations_are_refused},
      {"WorksAgainAfterAnError", works_again_after_an_error},
      {"TakesAColonInAPath", takes_a_colon_in_a_path},
      {"ManyFilesForFewRanks", many_files_for_few_ranks},
  };
  return tests;
}

}  // namespace cairn::test
