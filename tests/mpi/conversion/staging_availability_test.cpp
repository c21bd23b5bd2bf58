// Staging files work in a build with HDF5, and are refused with a message of one line in a build without HDF5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <functional>

#include "cairn/error.hpp"
#include "cairn/staging.hpp"
#include "hdf5/library.hpp"
#include "shared_temp_dir.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

void expect_refusal(const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("this build of Cairn has no HDF5"));
  }
}

TEST(StagingAvailability, IsThatOfTheBuild) {
  const SharedTempDir directory;
  const float value = 1;
  const std::vector<Source> state = {{{"model", "a", DType::kF32, {}, {{{}, {}}}}, &value}};
  const auto stage_it = [&] { stage(MPI_COMM_WORLD, directory / "x.h5", state); };
  if (hdf5::is_available()) {
    stage_it();
    EXPECT_TRUE(std::filesystem::exists(directory / "x.h5"));
  } else {
    expect_refusal(stage_it);
  }
}

}  // namespace
}  // namespace cairn::test
