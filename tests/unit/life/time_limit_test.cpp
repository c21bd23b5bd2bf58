// The time limit of a job of Slurm: from the environment, and from a scontrol that the test provides.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "environment.hpp"
#include "life/time_limit.hpp"
#include "temp_dir.hpp"

namespace cairn::life {
namespace {

class TimeLimit : public testing::Test {
 protected:
  TimeLimit() {
    const char* const path = std::getenv("PATH");
    path_ = path != nullptr ? path : "";
    ::unsetenv("SLURM_JOB_END_TIME");
    ::unsetenv("SLURM_JOB_ID");
    ::setenv("TZ", "UTC-2", 1);  // two hours east of UTC
    ::tzset();
  }
  ~TimeLimit() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("SLURM_JOB_END_TIME");
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("TZ");
    ::tzset();
  }
  void scontrol(const std::string& script) {
    test::write_file(folder_.path() / "scontrol", "#!/bin/sh\n" + script);
    ::chmod((folder_.path() / "scontrol").c_str(), 0755);
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }

  test::TempDir folder_;
  std::string path_;
};

constexpr const char* kAnswer =
    "JobId=7 JobName=x\n   RunTime=00:01:00 TimeLimit=01:00:00 TimeMin=N/A\n"
    "   StartTime=2026-11-27T09:00:00 EndTime=2026-11-27T10:00:00 Deadline=N/A\n";
constexpr double kEnd = 1795766400;  // 2026-11-27 08:00:00 UTC

TEST_F(TimeLimit, IsReadFromScontrolsAnswer) {
  EXPECT_EQ(end_time_in(kAnswer), kEnd);
  EXPECT_EQ(end_time_in("EndTime=2026-11-27T10:00:00"), kEnd);
  for (const char* none : {"", "EndTime=Unknown Deadline=N/A", "EndTime=NONE",
                           "EndTime=", "PreemptEndTime=2026-11-27T10:00:00", "EndTime=2026-11-27 10:00:00"}) {
    EXPECT_EQ(end_time_in(none), std::nullopt) << none;
  }
}

TEST_F(TimeLimit, IsNothingOutsideAJob) { EXPECT_EQ(time_limit_of_job(), std::nullopt); }

TEST_F(TimeLimit, IsTakenFromTheEnvironment) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  ::setenv("SLURM_JOB_END_TIME", "1795766400", 1);
  scontrol("echo called >> " + (folder_.path() / "called").string());
  EXPECT_EQ(time_limit_of_job(), kEnd);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "called"));
}

TEST_F(TimeLimit, IsAskedFromScontrol) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  scontrol("[ \"$1 $2 $3\" = 'show job 7' ] && cat <<'END'\n" + std::string(kAnswer) + "END\n");
  EXPECT_EQ(time_limit_of_job(), kEnd);
  ::setenv("SLURM_JOB_END_TIME", "tomorrow", 1);
  EXPECT_EQ(time_limit_of_job(), kEnd);
}

TEST_F(TimeLimit, IsUnknownIfScontrolFails) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  scontrol("echo EndTime=2026-11-27T10:00:00; exit 1\n");
  EXPECT_EQ(time_limit_of_job(), std::nullopt);
  ::setenv("PATH", "/nowhere", 1);
  EXPECT_EQ(time_limit_of_job(), std::nullopt);
}

}  // namespace
}  // namespace cairn::life
