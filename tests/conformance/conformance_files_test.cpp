// The conformance suite on the engines that write files, and the hints, which only "mpiio" has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "comm/mpi.hpp"
#include "engine_conformance.hpp"
#include "shared_temp_dir.hpp"

namespace cairn::test {
namespace {

/// Runs test number `number` on files; `ahead`: number of rounds in flight while the next round begins.
void expect_holds(std::size_t number, const char* engine, io::EngineOptions options = {}, std::size_t ahead = 0) {
  const SharedTempDir directory;
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  engine_tests()[number].body({*communicator, engine, directory.path(), std::move(options), ahead});
}

class FileEngineConformance : public testing::TestWithParam<std::tuple<const char*, std::size_t>> {};

TEST_P(FileEngineConformance, Holds) {
  const auto [engine, number] = GetParam();
  expect_holds(number, engine);
}

/// Engine direct with few buffers, so that requests wait for each other.
class BouncingEngineConformance : public testing::TestWithParam<std::size_t> {};

TEST_P(BouncingEngineConformance, Holds) {
  base::AlignedBuffer memory(3 * io::kRequestBytes);
  io::EngineOptions options;
  options.bounce_buffer = memory.span();
  expect_holds(GetParam(), "direct", std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Engine, BouncingEngineConformance, testing::Range(std::size_t{0}, engine_tests().size()),
                         [](const auto& param) { return engine_tests()[param.param].name; });

/// The conformance suite with rounds in flight while the next rounds begin.
class EngineConformanceAhead : public testing::TestWithParam<std::tuple<const char*, std::size_t>> {};

TEST_P(EngineConformanceAhead, Holds) {
  const auto [engine, number] = GetParam();
  expect_holds(number, engine, {}, 2);
}

INSTANTIATE_TEST_SUITE_P(Engine, EngineConformanceAhead,
                         testing::Combine(testing::Values("direct", "mpiio"),
                                          testing::Range(std::size_t{0}, engine_tests().size())),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + engine_tests()[std::get<1>(param.param)].name;
                         });

INSTANTIATE_TEST_SUITE_P(Engine, FileEngineConformance,
                         testing::Combine(testing::Values("direct", "mpiio", "posix"),
                                          testing::Range(std::size_t{0}, engine_tests().size())),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + engine_tests()[std::get<1>(param.param)].name;
                         });

/// The hints that the engine reports for its open files, on this rank.
io::Hints hints_told(comm::Communicator& communicator, const io::Hints& of_user) {
  const SharedTempDir directory;
  io::EngineOptions options;
  options.hints = of_user;
  const auto engine = io::make_engine("mpiio", communicator, options);
  // A file of one byte: only one rank has it open.
  engine->open_for_write({{directory / "f", 1}}, plan::ExtentMap({{0, 0, 1}}, communicator.size(), 1));
  const io::Hints told = engine->hints();
  engine->close();
  return told;
}

TEST(MpiioEngine, TellsAllRanksItsHints) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  io::Hints told = hints_told(*communicator, {});
  EXPECT_EQ(told["romio_cb_write"], "disable");
  EXPECT_EQ(told["romio_cb_read"], "disable");
  told = hints_told(*communicator, {{"romio_cb_write", "enable"}, {"cb_buffer_size", "65536"}});
  EXPECT_EQ(told["romio_cb_write"], "enable");
  EXPECT_EQ(told["romio_ds_write"], "disable");
  EXPECT_EQ(told["cb_buffer_size"], "65536");
  EXPECT_TRUE(io::make_engine("direct", *communicator, {})->hints().empty());
}

TEST(MpiioEngine, TakesHintsOfTheUser) {
  const SharedTempDir directory;
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const EngineCase c{*communicator,
                     "mpiio",
                     directory.path(),
                     {{{"romio_cb_write", "enable"}, {"cb_buffer_size", "65536"}, {"unknown_hint", "x"}}, true},
                     2};
  const std::vector<std::uint64_t> sizes = {300'000};
  const std::vector<io::EngineFile> files = {{directory / "f", 300'000}};
  write_files(c, files, plan::ExtentMap(plan::whole_files(sizes), communicator->size(), 1000), 50'000);
  EXPECT_EQ(compare_by_other_means(c, files, plan::whole_files(sizes)), 300'000U);
}

TEST(MpiioEngine, RefusesAHintWithoutAName) {
  const SharedTempDir directory;
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const auto engine = io::make_engine("mpiio", *communicator, {{{"", "x"}}, true});
  const std::string text = common_error(*communicator, ErrorKind::kUsage, [&] {
    engine->open_for_write({{directory / "f", 10}}, plan::ExtentMap({{0, 0, 10}}, communicator->size(), 1));
  });
  EXPECT_THAT(text, testing::HasSubstr("hint ''"));
}

}  // namespace
}  // namespace cairn::test
