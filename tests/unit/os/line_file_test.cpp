// Files of lines: whole lines from many threads, torn ends, faults, and a file that is replaced while others wait.
#include "os/line_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cairn/error.hpp"
#include "faults.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string content_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void append(const fs::path& path, const std::string& line) {
  LineFile file(path);
  file.append(line);
  file.close();
}

TEST(LineFile, AppendsAndReadsFromAnOffset) {
  const test::TempDir dir;
  append(dir / "log", "one");
  append(dir / "log", "two");
  EXPECT_EQ(content_of(dir / "log"), "one\ntwo\n");
  const LineFile file(dir / "log");
  EXPECT_EQ(file.size_bytes(), 8U);
  EXPECT_EQ(file.from(0), "one\ntwo\n");
  EXPECT_EQ(file.from(4), "two\n");
  EXPECT_EQ(file.from(8), "");
  EXPECT_EQ(file.from(9), "");
}

TEST(LineFile, EndsALineThatACrashLeft) {
  const test::TempDir dir;
  std::ofstream(dir / "log") << "one\ntor";
  append(dir / "log", "two");
  EXPECT_EQ(content_of(dir / "log"), "one\ntor\ntwo\n");
}

TEST(LineFile, AFullDiskTearsOneLine) {
  const test::TempDir dir;
  append(dir / "log", "one");
  {
    const test::Faults faults("write:path=log:short=2:times=1;write:path=log:errno=ENOSPC:times=1");
    EXPECT_THROW(append(dir / "log", "lost"), Error);
  }
  EXPECT_EQ(content_of(dir / "log"), "one\nlo");
  append(dir / "log", "two");
  EXPECT_EQ(content_of(dir / "log"), "one\nlo\ntwo\n");
}

TEST(LineFile, LinesOfManyThreadsDoNotMix) {
  constexpr int kThreads = 4;
  constexpr int kLines = 100;
  for (const char* rule : {"", "flock:errno=ENOLCK"}) {
    SCOPED_TRACE(rule);
    const test::TempDir dir;
    const test::Faults faults(rule);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kLines; ++i)
          append(dir / "log", std::to_string(t) + std::string(2000, 'x') + std::to_string(i));
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::set<std::string> lines;
    std::istringstream text(content_of(dir / "log"));
    for (std::string line; std::getline(text, line);) {
      if (!line.empty()) lines.insert(line);  // without locks, a line that is being written may look torn
    }
    EXPECT_EQ(lines.size(), std::size_t{kThreads} * kLines);
  }
}

TEST(LineFile, WhoWaitsForTheLockAppendsToTheFileThatReplacedTheOld) {
  const test::TempDir dir;
  append(dir / "log", "old");
  std::future<void> waiting;
  {
    const LineFile file(dir / "log");
    waiting = std::async(std::launch::async, [&] { append(dir / "log", "later"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::ofstream(dir / "new") << "new\n";
    fs::rename(dir / "new", dir / "log");
  }
  waiting.get();
  EXPECT_EQ(content_of(dir / "log"), "new\nlater\n");
}

TEST(LineFile, ALockThatIsNeverGivenBackDelaysALineAndNoMore) {
  const test::TempDir dir;
  append(dir / "log", "old");
  const LineFile file(dir / "log");
  append(dir / "log", "later");
  EXPECT_EQ(content_of(dir / "log"), "old\nlater\n");
}

TEST(LineFile, IsARegularFile) {
  const test::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  fs::create_directory(dir / "folder");
  for (const char* name : {"fifo", "folder", "folder/none/log"}) {
    EXPECT_THROW(append(dir / name, "x"), Error) << name;
  }
}

TEST(LineFile, EveryCallMayFail) {
  for (const char* rule : {"open:path=log:errno=EACCES", "open:path=log:errno=30", "write:path=log:errno=ENOSPC",
                           "write:path=log:errno=EDQUOT", "read:path=log", "close:path=log:after=1"}) {
    const test::TempDir dir;
    append(dir / "log", "one");
    {
      const test::Faults faults(rule);
      EXPECT_THROW(append(dir / "log", "two"), Error) << rule;
    }
    EXPECT_THAT(content_of(dir / "log"), HasSubstr("one\n")) << rule;
  }
}

}  // namespace
}  // namespace cairn::os
