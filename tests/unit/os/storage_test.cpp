// Facts about the storage under a directory: quotas, Lustre's attribute, permissions. Unknown facts are missing.
#include "os/storage.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cairn/error.hpp"
#include "os/file.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

using test::TempDir;

constexpr std::int64_t kNow = 1'000;

TEST(Quota, LeavesNothingToSayWithoutALimit) {
  EXPECT_FALSE(quota_left("user 1", {.used_bytes = 5, .used_files = 5}, kNow));
  EXPECT_FALSE(quota_left("user 1", {.soft_bytes = 4, .used_bytes = 5, .soft_bytes_end_s = kNow + 1}, kNow));
}

TEST(Quota, IsTheHardLimitOrASoftOneWhoseTimeIsOver) {
  const auto left = [](const QuotaRecord& record) { return quota_left("user 1", record, kNow).value(); };
  EXPECT_EQ(left({.hard_bytes = 100, .used_bytes = 40}).bytes, 60U);
  EXPECT_EQ(left({.hard_bytes = 100, .used_bytes = 140}).bytes, 0U);
  EXPECT_EQ(left({.hard_bytes = 100, .soft_bytes = 50, .used_bytes = 60, .soft_bytes_end_s = kNow + 1}).bytes, 40U);
  EXPECT_EQ(left({.hard_bytes = 100, .soft_bytes = 50, .used_bytes = 60, .soft_bytes_end_s = kNow}).bytes, 0U);
  EXPECT_EQ(left({.soft_bytes = 50, .used_bytes = 60, .soft_bytes_end_s = kNow}).bytes, 0U);
  EXPECT_FALSE(left({.hard_bytes = 100}).files);
  EXPECT_EQ(left({.hard_files = 10, .soft_files = 5, .used_files = 7}).files, 3U);
  EXPECT_EQ(left({.hard_files = 10, .soft_files = 5, .used_files = 7, .soft_files_end_s = 1}).files, 0U);
}

TEST(Storage, TellsOfADirectory) {
  const TempDir dir;
  const StorageFacts facts = storage_facts(dir.path());
  EXPECT_EQ(facts.type, file_system_of(dir.path()).type);
  ASSERT_TRUE(facts.free_bytes);
  EXPECT_GT(*facts.free_bytes, 0U);
  EXPECT_FALSE(stripes_of(dir.path()));
  const StorageFacts missing = storage_facts(dir / "missing");
  EXPECT_EQ(missing.type, "");
  EXPECT_FALSE(missing.free_bytes);
}

TEST(Storage, ReadsTheStripesThatItWrites) {
  const auto stripes = decode_striping(encode_striping({8, 4 << 20}));
  ASSERT_TRUE(stripes);
  EXPECT_EQ(stripes->count, 8U);
  EXPECT_EQ(stripes->unit_bytes, 4U << 20);
  EXPECT_EQ(decode_striping(encode_striping({Striping::kAllTargets, 0})).value().count, Striping::kAllTargets);
  EXPECT_FALSE(decode_striping({}));
  std::vector<std::byte> other = encode_striping({8, 0});
  EXPECT_FALSE(decode_striping(std::span(other).first(31)));
  other[2] = std::byte{0xD6};  // a progressive layout
  EXPECT_FALSE(decode_striping(other));
}

TEST(Access, IsGrantedInADirectoryOfOnesOwn) {
  const TempDir dir;
  EXPECT_EQ(access_problem(dir.path()).error, 0);
  check_access(dir.path());
  EXPECT_EQ(access_problem(dir / "missing").error, 0);  // other calls say that better
}

/// The message of check_access() as a user without privileges, in a process of its own; "" without a problem.
std::string message_as_another_user(const std::filesystem::path& directory) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    constexpr unsigned kNobody = 65534;
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) text = "the user cannot be changed";
    try {
      check_access(directory);
    } catch (const Error& error) {
      text = error.what();
    }
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text(2000, '\0');
  const ssize_t size = ::read(ends[0], text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST(Access, OfAnotherUserIsDenied) {
  const TempDir dir;
  const std::filesystem::path directory = dir / "closed";
  std::filesystem::create_directory(directory);
  for (const mode_t mode : {0500U, 0600U, 0U}) {
    ASSERT_EQ(::chmod(directory.c_str(), mode), 0);
    EXPECT_THAT(message_as_another_user(directory),
                testing::MatchesRegex("Permission denied: '.*closed' cannot be written "
                                      "by this user \\(uid [0-9]+\\); choose .*"));
  }
  ASSERT_EQ(::chmod(directory.c_str(), 0700), 0);
}

}  // namespace
}  // namespace cairn::os
