// Sessions, the choice of MPI-IO, aborts, and launchers. Each case that initialises MPI runs in a child process.
// With ROMIO_PRINT_HINTS, a line is printed if ROMIO opened the file, but not if OMPIO did.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_codes.hpp"
#include "cairn/error.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi.hpp"
#include "comm/mpi_call.hpp"
#include "comm/watchdog.hpp"

namespace cairn::comm {
namespace {

constexpr const char* kRomioOpened = "romio_cb_write";

class MpiProcessDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const char* name : {"OMPI_MCA_io", "OMPI_MCA_sharedfp"}) ::unsetenv(name);
  }
};

/// The choice between ROMIO and OMPIO, which these tests expect of Open MPI 4 only.
class MpiIoDeathTest : public MpiProcessDeathTest {
 protected:
  void SetUp() override {
    MpiProcessDeathTest::SetUp();
    if (!mpi_library().starts_with("Open MPI v4.")) GTEST_SKIP() << "MPI is not Open MPI 4 but " << mpi_library();
  }
};

void init_mpi() {
  int granted = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted);
}

void open_a_file() {
  ::setenv("ROMIO_PRINT_HINTS", "1", 1);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // the death test reads standard error
  MPI_File file = MPI_FILE_NULL;
  const std::string name = "mpi_io_" + std::to_string(::getpid());
  const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
  if (MPI_File_open(MPI_COMM_SELF, name.c_str(), mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
    throw std::runtime_error("MPI_File_open failed");
  }
  MPI_File_close(&file);
  std::fflush(stdout);
}

[[noreturn]] void say_which_and_exit() {
  const MpiIoImplementation found = mpi_io_implementation();
  std::fprintf(stderr, "component %s, loses errors %d\n", found.io_component.c_str(), found.loses_write_errors ? 1 : 0);
  std::fflush(nullptr);
  std::_Exit(0);
}

TEST_F(MpiIoDeathTest, TheDefaultIsOmpio) {
  const auto run = [] {
    init_mpi();
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^component ompio, loses errors 1");  // without ROMIO's output
}

TEST_F(MpiIoDeathTest, ASessionTakesRomio) {
  const auto run = [] {
    int argc = 0;
    char** argv = nullptr;
    const MpiSession session(argc, argv);
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              std::string(kRomioOpened) + "(.|\n)*component romio321, loses errors 0");
}

TEST_F(MpiIoDeathTest, RomioCanBePreferredAfterInit) {
  const auto run = [] {
    init_mpi();
    prefer_romio();
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              std::string(kRomioOpened) + "(.|\n)*component romio321, loses errors 0");
}

TEST_F(MpiIoDeathTest, AskingFirstDoesNotFixTheChoice) {
  const auto run = [] {
    init_mpi();
    if (mpi_io_implementation().io_component != "ompio") std::_Exit(1);
    prefer_romio();
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              std::string(kRomioOpened) + "(.|\n)*component romio321, loses errors 0");
}

TEST_F(MpiIoDeathTest, RomioCanBePreferredWhileAToolHoldsTheToolInterface) {
  const auto run = [] {
    init_mpi();
    int granted = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &granted);
    prefer_romio();
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              std::string(kRomioOpened) + "(.|\n)*component romio321, loses errors 0");
}

TEST_F(MpiIoDeathTest, ASessionTakesRomioWhileAToolHoldsTheToolInterface) {
  const auto run = [] {
    int granted = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &granted);
    int argc = 0;
    char** argv = nullptr;
    const MpiSession session(argc, argv);
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              std::string(kRomioOpened) + "(.|\n)*component romio321, loses errors 0");
}

TEST_F(MpiIoDeathTest, TheThreadLevelOfTheProcessStays) {
  const auto run = [](int asked, bool prefer_first) {
    int granted = 0;
    MPI_Init_thread(nullptr, nullptr, asked, &granted);
    if (prefer_first) prefer_romio();
    mpi_io_implementation();
    prefer_romio();
    int level = -1;
    MPI_Query_thread(&level);
    std::fprintf(stderr, "granted %d, still %d\n", granted, level);
    std::_Exit(level == granted ? 0 : 1);
  };
  for (const int asked : {MPI_THREAD_MULTIPLE, MPI_THREAD_FUNNELED}) {
    EXPECT_EXIT(run(asked, true), testing::ExitedWithCode(0), "still") << asked;
    EXPECT_EXIT(run(asked, false), testing::ExitedWithCode(0), "still") << asked;
  }
}

TEST_F(MpiIoDeathTest, TooLateIsSaid) {
  const auto run = [] {
    init_mpi();
    open_a_file();
    prefer_romio();
    open_a_file();
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^component ompio, loses errors 1");
}

TEST_F(MpiIoDeathTest, TheUsersChoiceIsLeftAlone) {
  const auto run = [] {
    ::setenv("OMPI_MCA_io", "ompio", 1);
    int argc = 0;
    char** argv = nullptr;
    const MpiSession session(argc, argv);
    say_which_and_exit();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "component ompio, loses errors 1");
}

TEST_F(MpiProcessDeathTest, ASessionIsASingletonWithoutALauncher) {
  const auto run = [] {
    {
      int argc = 0;
      char** argv = nullptr;
      const MpiSession session(argc, argv);
      const auto communicator = duplicate_mpi(MPI_COMM_WORLD);
      const auto sum = communicator->sum(5);
      std::fprintf(stderr, "%d rank, sum %d, up %d\n", communicator->size(), static_cast<int>(sum),
                   internal::mpi_is_up() ? 1 : 0);
    }
    std::fprintf(stderr, "then up %d\n", internal::mpi_is_up() ? 1 : 0);
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "1 rank, sum 5, up 1\nthen up 0");
}

TEST_F(MpiProcessDeathTest, AnExceptionThroughTheSessionAborts) {
  const auto run = [] {
    try {
      int argc = 0;
      char** argv = nullptr;
      const MpiSession session(argc, argv);
      throw std::runtime_error("something");
    } catch (const std::exception&) {
      std::_Exit(0);  // not reached: the session aborts, because finalizing would wait for other ranks
    }
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(1), "");
}

TEST_F(MpiProcessDeathTest, TheWatchdogEndsTheJob) {
  const auto run = [] {
    int argc = 0;
    char** argv = nullptr;
    const MpiSession session(argc, argv);
    const auto communicator = duplicate_mpi(MPI_COMM_WORLD, {0.3, OnSilence::kEndProcess, {}});
    communicator->progress("exchange");
    base::Bytes byte(1);
    communicator->receive(byte, 0, 0)->wait();  // a message that no rank sends
  };
  EXPECT_EXIT(
      run(), testing::ExitedWithCode(base::kExitSilent),
      "no progress on any rank for 0.3 s in phase 'exchange' .receive.: every rank waits, and none for the same");
}

TEST_F(MpiProcessDeathTest, AnAbandonedMessageAborts) {
  const auto run = [] {
    init_mpi();
    const auto communicator = duplicate_mpi(MPI_COMM_WORLD);
    base::Bytes byte(1);
    communicator->receive(byte, 0, 0).reset();
    std::_Exit(0);
  };
  EXPECT_EXIT(
      run(), [](int status) { return status != 0; },
      "receive of 1 bytes on rank 0 from rank 0 with tag 0 was abandoned");
}

TEST(MpiProcess, CommunicatorsNeedARunningMpi) {
  try {
    duplicate_mpi(MPI_COMM_WORLD);
    ADD_FAILURE() << "a communicator without MPI";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
  }
}

constexpr const char* kLauncherVariables[] = {
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE",     "PMI_RANK", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS",
    "SLURM_STEP_ID",        "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "PMIX_RANK"};

/// Clears the launchers' variables, sets the given ones, and clears them again at the end.
class Launched {
 public:
  explicit Launched(const std::vector<std::pair<const char*, const char*>>& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  ~Launched() { clear(); }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

 private:
  static void clear() {
    for (const char* name : kLauncherVariables) ::unsetenv(name);
  }
};

TEST(MpiProcess, ProcessesThatOnlyBelieveToBeAloneAreFound) {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  const Variables lonely[] = {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}},
                              {{"PMI_SIZE", "2"}},
                              {{"MV2_COMM_WORLD_SIZE", "2"}},
                              {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}},
                              {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}},
                              {{"PMIX_RANK", "3"}}};
  for (const Variables& variables : lonely) {
    const Launched launched(variables);
    const auto mismatch = launcher_mismatch(1);
    ASSERT_TRUE(mismatch) << variables[0].first;
    EXPECT_EQ(mismatch->variable, variables[0].first);
    EXPECT_NE(describe(*mismatch).find(std::string(variables[0].first) + "=" + variables[0].second), std::string::npos);
    EXPECT_FALSE(launcher_mismatch(4)) << variables[0].first;
  }
}

TEST(MpiProcess, OneProcessOfABatchScriptIsAlone) {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  const Variables alone[] = {{},
                             {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
                             {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}},
                             {{"OMPI_COMM_WORLD_SIZE", "1"}},
                             {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
                             {{"PMIX_RANK", "0"}}};
  for (const Variables& variables : alone) {
    const Launched launched(variables);
    EXPECT_FALSE(launcher_mismatch(1)) << (variables.empty() ? "" : variables[0].first);
  }
}

TEST_F(MpiProcessDeathTest, ALonelyProcessIsRefused) {
  const auto run = [] {
    init_mpi();
    const Launched launched({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}});
    try {
      refuse_lonely_process();
    } catch (const Error& error) {
      std::fprintf(stderr, "kind %d: %s\n", static_cast<int>(error.kind()), error.what());
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(3), "kind 0: not saved: SLURM_STEP_NUM_TASKS=4 but MPI sees one rank");
}

}  // namespace
}  // namespace cairn::comm
