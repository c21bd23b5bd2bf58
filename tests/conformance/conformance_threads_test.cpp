// The conformance suite with threads as ranks: for the engines without MPI, and for the thread sanitizer.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "engine_conformance.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

class ThreadsConformance : public testing::TestWithParam<std::tuple<const char*, std::size_t, int>> {};

TEST_P(ThreadsConformance, Holds) {
  const auto [engine, number, ranks] = GetParam();
  const TempDir directory;
  comm::run_simulated(ranks, [&, name = engine, test = &engine_tests()[number]](comm::Communicator& communicator) {
    test->body({communicator, name, directory.path(), {}});
  });
}

INSTANTIATE_TEST_SUITE_P(Engine, ThreadsConformance,
                         testing::Combine(testing::Values("direct", "posix"),
                                          testing::Range(std::size_t{0}, engine_tests().size()),
                                          testing::Values(1, 2, 4, 7)),
                         [](const auto& param) {
                           return std::get<0>(param.param) + engine_tests()[std::get<1>(param.param)].name + "On" +
                                  std::to_string(std::get<2>(param.param));
                         });

TEST(MakeEngine, RefusesWhatItCannotMake) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    EXPECT_THROW(io::make_engine("tape", communicator, {}), Error);
    EXPECT_THROW(io::make_engine("mpiio", communicator, {}), Error);  // simulated ranks have no MPI
  });
}

}  // namespace
}  // namespace cairn::test
