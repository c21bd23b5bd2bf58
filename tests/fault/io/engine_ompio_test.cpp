// Wrong byte counts: errors that are noticed even with OMPIO of Open MPI 4, which loses write errors. This program's
// entries run with OMPI_MCA_io=ompio. The engine avoids the collective calls that hang or misreport there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "comm/mpi.hpp"
#include "os/fault.hpp"
#include "scratch_mount.hpp"
#include "shared_temp_dir.hpp"
#include "small_save.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

class EngineOnOmpio : public testing::Test {
 protected:
  void SetUp() override {
    const comm::MpiIoImplementation implementation = comm::mpi_io_implementation();
    if (!implementation.loses_write_errors) {
      GTEST_SKIP() << implementation.library << " with " << implementation.io_component << " loses no write errors";
    }
    os::set_fault_rank(communicator_->rank());
  }
  ~EngineOnOmpio() override { os::set_faults(""); }

  std::unique_ptr<comm::Communicator> communicator_ = comm::duplicate_mpi(MPI_COMM_WORLD);
  SharedTempDir directory_;
};

TEST_F(EngineOnOmpio, WarnsOnceByName) {
  testing::internal::CaptureStderr();
  static_cast<void>(io::make_engine("mpiio", *communicator_, {}));
  static_cast<void>(io::make_engine("mpiio", *communicator_, {}));
  const std::string said = testing::internal::GetCapturedStderr();
  if (communicator_->rank() == 0) {
    EXPECT_THAT(said, HasSubstr("OMPI_MCA_io=romio321"));
    EXPECT_EQ(said.find("OMPI_MCA_io=romio321"), said.rfind("OMPI_MCA_io=romio321"));
  }
}

TEST_F(EngineOnOmpio, SavesAndLoads) {
  const SmallSave save(*communicator_, directory_.path(), 600'000);
  save.save();
  EXPECT_EQ(save.load(), save.total_bytes());
}

TEST_F(EngineOnOmpio, AFullFileSystemIsFoundByTheCountOfTheWrite) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  ScratchMount mount(*communicator_, directory_.path(), 16 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  io::EngineOptions options;
  options.reserve_space = false;
  const SmallSave save(*communicator_, mount.path(), 8 * kMiB, options);
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = common_error(*communicator_, ErrorKind::kIo, [&] { save.save(); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_THAT(text, HasSubstr("MPI reported success, but moved"));
  EXPECT_THAT(text, HasSubstr("(tmpfs) has"));
}

TEST_F(EngineOnOmpio, InjectedFailuresReachAllRanks) {
  const SmallSave save(*communicator_, directory_.path(), 600'000);
  const std::string last = std::to_string(communicator_->size() - 1);
  for (const std::string rule : {"write:errno=EIO", "write:short=100", "fsync:errno=EIO"}) {
    os::set_faults(rule + ":rank=" + last);
    EXPECT_THAT(common_error(*communicator_, ErrorKind::kIo, [&] { save.save(); }), HasSubstr(".safetensors")) << rule;
    os::set_faults("");
    save.remove_files();
  }
  save.save();
  os::set_faults("read:short=100:rank=" + last);
  EXPECT_THAT(common_error(*communicator_, ErrorKind::kIo, [&] { static_cast<void>(save.load()); }),
              HasSubstr("cannot read"));
}

}  // namespace
}  // namespace cairn::test
