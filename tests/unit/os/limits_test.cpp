// Limits of a process give errors with a remedy, although the system itself gives only signals and bare codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "faults.hpp"
#include "os/file.hpp"
#include "os/io_queue.hpp"
#include "os/limits.hpp"
#include "os_test_tools.hpp"
#include "soft_limit.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

using test::SoftLimit;
using test::TempDir;
using testing::HasSubstr;

// The signal for a file that grows too large would end the process, so these tests pass by surviving.

TEST(SizeLimit, IsAnErrorWithARemedyAndNoSignal) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  const SoftLimit limit(RLIMIT_FSIZE, 8192);
  const std::vector<std::byte> bytes(8193);
  const auto refused = [&](const std::function<void()>& call) {
    EXPECT_THAT(error_of(ErrorKind::kIo, call),
                HasSubstr("File too large; files of this process may have 8192 bytes: raise the limit (ulimit -f)"));
  };
  refused([&] { file.set_size(8193); });
  refused([&] { file.reserve(8193); });
  refused([&] { file.write_at(bytes, 0); });
  refused([&] { file.write_at(std::span(bytes).first(2), 8191); });
  file.set_size(8192);
  file.write_at(std::span(bytes).first(8192), 0);
  EXPECT_EQ(file.size_bytes(), 8192U);
}

TEST(SizeLimit, HoldsForWritesThatTheKernelMakesMeanwhile) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  std::optional<IoQueue> queue;
  try {
    queue.emplace(4);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const SoftLimit limit(RLIMIT_FSIZE, 4096);
  const std::vector<std::byte> bytes(4097);
  queue->write({&file, &file, 1}, bytes, 0, 1);
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { queue->finish(1); }), HasSubstr("ulimit -f"));
}

TEST(DescriptorLimit, IsAnErrorWithARemedy) {
  const TempDir dir;
  std::vector<File> files;
  const SoftLimit limit(RLIMIT_NOFILE, 64);
  const std::uint64_t before = free_descriptors();
  EXPECT_LT(before, 64U);
  EXPECT_GT(before, 8U);
  const std::string text = error_of(ErrorKind::kIo, [&] {
    for (int i = 0; i < 100; ++i) files.emplace_back(dir / std::to_string(i), OpenMode::kCreateNew);
  });
  EXPECT_THAT(text, HasSubstr("Too many open files; this process may have 64 files open: raise the limit (ulimit -n)"));
  EXPECT_GE(files.size() + 1, before) << "as many as were said to be free, but for the one that counted them";
}

/// overlayfs answers EXDEV for a directory of a lower layer.
TEST(Rename, OfADirectoryOfAnImageIsAnErrorWithARemedy) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(dir / name);
  const test::Faults faults("rename:errno=" + std::to_string(EXDEV) + ";exchange:errno=" + std::to_string(EXDEV));
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { exchange(dir / "a", dir / "b"); }), HasSubstr("mounted into it"));
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { os::rename(dir / "a", dir / "c"); }), HasSubstr("mounted into it"));
}

TEST(Limits, AreMetByProgramsOfOurs) {
  EXPECT_EXIT(
      {
        const SoftLimit files(RLIMIT_NOFILE, 64);
        meet_limits();
        rlimit found{};
        ::getrlimit(RLIMIT_NOFILE, &found);
        ::raise(SIGXFSZ);
        std::_Exit(found.rlim_cur == std::min<rlim_t>(found.rlim_max, 1 << 16) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cairn::os
