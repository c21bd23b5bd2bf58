// The cases of comm_cases.hpp on MPI: unchanged, and with chunks of a few bytes, so that small messages are split like
// messages above 2 GiB.
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>
#include <tuple>

#include "cairn/error.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi.hpp"
#include "comm/mpi_call.hpp"
#include "comm_cases.hpp"
#include "simulated.hpp"

namespace cairn::comm {
namespace {

using Parameter = std::tuple<test::CommCase, std::uint64_t>;

class MpiCommCases : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override { internal::set_chunk_bytes(std::get<1>(GetParam())); }
  void TearDown() override { internal::set_chunk_bytes(0); }
};

TEST_P(MpiCommCases, Pass) {
  const auto communicator = duplicate_mpi(MPI_COMM_WORLD);
  std::get<0>(GetParam()).run(*communicator);
}

INSTANTIATE_TEST_SUITE_P(ByChunk, MpiCommCases,
                         testing::Combine(testing::ValuesIn(test::comm_cases()), testing::Values(0U, 5U, 24U)),
                         [](const testing::TestParamInfo<Parameter>& parameter) {
                           const std::uint64_t chunk = std::get<1>(parameter.param);
                           return std::string(std::get<0>(parameter.param).name) +
                                  (chunk == 0 ? "" : "InChunksOf" + std::to_string(chunk));
                         });

TEST(MpiCommunicator, IsADuplicateWithErrorsReturned) {
  const auto communicator = duplicate_mpi(MPI_COMM_WORLD);
  const MPI_Comm handle = native_handle(*communicator);
  int relation = MPI_UNEQUAL;
  ASSERT_EQ(MPI_Comm_compare(handle, MPI_COMM_WORLD, &relation), MPI_SUCCESS);
  EXPECT_EQ(relation, MPI_CONGRUENT);
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  ASSERT_EQ(MPI_Comm_get_errhandler(handle, &handler), MPI_SUCCESS);
  EXPECT_EQ(handler, MPI_ERRORS_RETURN);
  const auto derived = communicator->duplicate();
  EXPECT_NE(native_handle(*derived), MPI_COMM_NULL);
  EXPECT_NE(native_handle(*derived), handle);
  run_simulated(1, [](Communicator& simulated) { EXPECT_EQ(native_handle(simulated), MPI_COMM_NULL); });
}

TEST(MpiCall, ErrorsHaveMpisText) {
  const auto communicator = duplicate_mpi(MPI_COMM_WORLD);
  int value = 0;
  try {
    internal::check_mpi(MPI_Bcast(&value, 1, MPI_INT, 99, native_handle(*communicator)), "MPI_Bcast");
    ADD_FAILURE() << "a broadcast from rank 99 succeeded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    const std::string text = error.what();
    EXPECT_NE(text.find("MPI_Bcast failed on world rank "), std::string::npos) << text;
    EXPECT_NE(text.find("root"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(MpiCall, CountsAreChecked) {
  EXPECT_EQ(internal::to_count(2147483647U), 2147483647);
  EXPECT_THROW(internal::to_count(2147483648U), Error);
  EXPECT_THROW(internal::set_chunk_bytes((1ULL << 30) + 1), Error);
}

TEST(MpiSession, LeavesARunningMpiAlone) {
  int argc = 0;
  char** argv = nullptr;
  { const MpiSession session(argc, argv); }
  EXPECT_TRUE(internal::mpi_is_up());
}

TEST(WrongLauncher, IsSilentForARealWorld) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_FALSE(launcher_mismatch(size));
  EXPECT_NO_THROW(refuse_lonely_process());
}

}  // namespace
}  // namespace cairn::comm
