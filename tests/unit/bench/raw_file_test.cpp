// Raw files by every method: data of many sizes is read back as written; changes on disk are found.
#include "bench/raw_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "temp_dir.hpp"

namespace cairn::bench {
namespace {

constexpr std::uint64_t kRequestBytes = 64 << 10;

class RawFile : public testing::TestWithParam<RawMethod> {
 protected:
  void SetUp() override {
    // A method that the file system refuses cannot be tested; the page cache works anywhere.
    const RawMethod best = find_raw_method(folder_.path());
    const bool is_direct = GetParam() == RawMethod::kUring || GetParam() == RawMethod::kThreads;
    if (is_direct && (best == RawMethod::kBuffered || best == RawMethod::kMemory))
      GTEST_SKIP() << "no O_DIRECT at " << folder_.path();
    if (best == RawMethod::kThreads && GetParam() == RawMethod::kUring) GTEST_SKIP() << "no io_uring here";
    options_ = {GetParam(), kRequestBytes, 3};
  }
  void write(std::uint32_t file, std::uint64_t bytes, const RawPattern& pattern) {
    RawWriter(raw_path(folder_.path(), file), file, bytes, options_, pattern, memory_).write();
    EXPECT_EQ(os::file_size(raw_path(folder_.path(), file)), bytes);
  }
  std::optional<std::string> fault_of(const std::vector<RawPiece>& pieces, const RawPattern& pattern) {
    RawReader reader(folder_.path(), pieces, options_, memory_);
    reader.read();
    return reader.fault(pattern);
  }

  test::TempDir folder_;
  RawOptions options_;
  RankMemory memory_;
};

TEST_P(RawFile, CopiedBytesAreTheSame) {
  const RawPattern pattern(7, kRequestBytes);
  for (const std::uint64_t bytes : {0ULL, 5ULL, 65536ULL, 65537ULL, 1000001ULL}) {
    RawWriter writer(raw_path(folder_.path(), 0), 0, bytes, options_, pattern, memory_, RawWay::kCopied);
    writer.write();
    EXPECT_EQ(fault_of({{0, 0, bytes}}, pattern), std::nullopt) << bytes;
    RawReader reader(folder_.path(), {{0, 0, bytes}}, options_, memory_, RawWay::kCopied);
    reader.read();
    EXPECT_EQ(reader.fault(pattern), std::nullopt) << bytes;
  }
}

TEST_P(RawFile, SizesOffRequestsAndPages) {
  const RawPattern pattern(7, kRequestBytes);
  for (const std::uint64_t bytes : {0ULL, 1ULL, 5ULL, 4095ULL, 4096ULL, 4097ULL, 65536ULL, 65537ULL, 1000001ULL}) {
    write(0, bytes, pattern);
    EXPECT_EQ(fault_of({{0, 0, bytes}}, pattern), std::nullopt) << bytes;
  }
}

TEST_P(RawFile, PiecesOfSeveralFilesFromTheMiddle) {
  const RawPattern pattern(7, kRequestBytes);
  write(0, 50 * 4096, pattern);
  write(1, 30 * 4096 + 11, pattern);
  EXPECT_EQ(fault_of({{0, 17 * 4096, 33 * 4096}, {1, 0, 4096}}, pattern), std::nullopt);
  EXPECT_EQ(fault_of({{1, 4096, 29 * 4096 + 11}}, pattern), std::nullopt);
}

TEST_P(RawFile, AnotherSeedFileOrPlaceIsFound) {
  const RawPattern pattern(7, kRequestBytes);
  write(0, 40 * 4096, pattern);
  EXPECT_NE(fault_of({{0, 0, 40 * 4096}}, RawPattern(8, kRequestBytes)), std::nullopt);
  std::filesystem::copy_file(raw_path(folder_.path(), 0), raw_path(folder_.path(), 1));
  EXPECT_NE(fault_of({{1, 0, 40 * 4096}}, pattern), std::nullopt);
}

TEST_P(RawFile, OneChangedByteIsFoundAndItsPageNamed) {
  const RawPattern pattern(7, kRequestBytes);
  write(0, 40 * 4096 + 5, pattern);
  for (const std::uint64_t at : {0ULL, 20ULL * 4096 + 100, 40ULL * 4096 + 4}) {
    const auto path = raw_path(folder_.path(), 0);
    const std::string content = os::read_text(path, 1 << 20);
    std::string changed = content;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
    const auto fault = fault_of({{0, 0, 40 * 4096 + 5}}, pattern);
    ASSERT_NE(fault, std::nullopt) << at;
    EXPECT_NE(fault->find("byte " + std::to_string(at / 4096 * 4096)), std::string::npos) << *fault;
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
}

TEST_P(RawFile, AFileThatEndsEarlyIsAnError) {
  const RawPattern pattern(7, kRequestBytes);
  write(0, 40 * 4096, pattern);
  std::filesystem::resize_file(raw_path(folder_.path(), 0), 20 * 4096);
  RawReader reader(folder_.path(), {{0, 0, 40 * 4096}}, options_, memory_);
  EXPECT_THROW(reader.read(), Error);
}

/// Error::system_error() of the Error that the call throws.
int system_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
    return error.system_error();
  }
  ADD_FAILURE() << "nothing was thrown";
  return -1;
}

TEST_P(RawFile, AnErrorHasItsNumber) {
  EXPECT_EQ(system_error_of([&] { open_raw(folder_ / "missing", O_RDONLY, GetParam()); }), ENOENT);
  const os::Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_GE(full.get(), 0);
  base::AlignedBuffer page(kRawPageBytes);
  std::ranges::fill(page.span(), std::byte{1});
  bool asked = false;
  const auto ask = [&](unsigned) -> std::optional<RawRequest> {
    if (std::exchange(asked, true)) return std::nullopt;
    return RawRequest{full.get(), true, page.span().data(), kRawPageBytes, 0, kRawPageBytes};
  };
  EXPECT_EQ(system_error_of([&] { make_raw_transfer(GetParam(), 1)->run(ask); }), ENOSPC);
}

TEST_P(RawFile, WhatIsReadMayBeDamagedOnPurpose) {
  const RawPattern pattern(7, kRequestBytes);
  write(0, 40 * 4096, pattern);
  os::set_faults("bench.raw:times=1");
  EXPECT_NE(fault_of({{0, 0, 40 * 4096}}, pattern), std::nullopt);
  os::set_faults("");
  EXPECT_EQ(fault_of({{0, 0, 40 * 4096}}, pattern), std::nullopt);
}

std::string method_name(const testing::TestParamInfo<RawMethod>& info) {
  switch (info.param) {
    case RawMethod::kUring: return "Uring";
    case RawMethod::kThreads: return "Threads";
    case RawMethod::kBuffered: return "Buffered";
    case RawMethod::kMemory: return "Memory";
  }
  return "";
}
INSTANTIATE_TEST_SUITE_P(Methods, RawFile,
                         testing::Values(RawMethod::kUring, RawMethod::kThreads, RawMethod::kBuffered,
                                         RawMethod::kMemory),
                         method_name);

TEST(RawMethod, LeavesNothingBehind) {
  const test::TempDir folder;
  find_raw_method(folder.path());
  EXPECT_TRUE(os::list_directory(folder.path()).empty());
}

TEST(RawMethod, ADirectoryThatIsNotThereIsAnError) {
  const test::TempDir folder;
  EXPECT_THROW(find_raw_method(folder / "missing"), Error);
}

TEST(RawPattern, NoTwoPagesAreAlike) {
  const RawPattern pattern(1, kRequestBytes);
  std::vector<std::byte> data(2 * kRequestBytes);
  pattern.fill(data);
  pattern.stamp(data, 0, 0);
  const auto half = data.begin() + kRequestBytes;
  EXPECT_FALSE(std::equal(data.begin(), half, half));
  EXPECT_EQ(pattern.first_difference(data, 0, 0), std::nullopt);
  EXPECT_EQ(pattern.first_difference(data, 0, kRequestBytes), std::optional<std::uint64_t>(kRequestBytes));
  EXPECT_EQ(pattern.first_difference(data, 1, 0), std::optional<std::uint64_t>(0));
}

}  // namespace
}  // namespace cairn::bench
