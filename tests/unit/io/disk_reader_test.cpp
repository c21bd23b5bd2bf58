// Ranges of files read past the page cache, at any offsets, with every method that the kernel offers.
#include "io/disk_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "cairn/error.hpp"
#include "faults.hpp"
#include "os/page_cache.hpp"
#include "temp_dir.hpp"

namespace cairn::io {
namespace {

using test::Faults;
using testing::HasSubstr;

class Reader : public testing::Test {
 protected:
  Reader() {
    for (const std::uint64_t size :
         {std::uint64_t{3'000'000}, std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{5}}) {
      std::vector<std::byte>& content = contents_.emplace_back(size);
      for (std::size_t i = 0; i < size; ++i) content[i] = static_cast<std::byte>(i * 7 + i / 4096 + contents_.size());
      files_.push_back({folder_.path() / std::to_string(files_.size()), size});
      os::write_new_file(files_.back().path, content);
    }
  }

  /// Expects exactly the bytes of these ranges to be read, in order.
  void expect_read(const std::vector<plan::Extent>& ranges, std::uint64_t memory_bytes) {
    base::AlignedBuffer memory(memory_bytes);
    DiskReader reader(memory.span());
    std::size_t range = 0;
    std::uint64_t at = ranges.front().begin;
    std::uint64_t compared = 0;
    reader.read(files_, ranges, [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
      ASSERT_LT(range, ranges.size());
      EXPECT_EQ(file, ranges[range].file);
      EXPECT_EQ(offset, at);
      ASSERT_LE(offset + data.size(), ranges[range].end);
      EXPECT_LE(data.size(), kRequestBytes);
      EXPECT_EQ(std::memcmp(data.data(), contents_[file].data() + offset, data.size()), 0);
      compared += data.size();
      at += data.size();
      if (at == ranges[range].end && ++range < ranges.size()) at = ranges[range].begin;
    });
    std::uint64_t all = 0;
    for (const plan::Extent& extent : ranges) all += extent.end - extent.begin;
    EXPECT_EQ(compared, all);
    EXPECT_EQ(reader.cached_bytes() == 0, reader.why_cached().empty());
    const bool is_in_memory = os::file_system_of(folder_.path()).lives_in_memory();
    EXPECT_EQ(reader.cached_bytes(), is_in_memory ? all : 0) << reader.why_cached();
  }

  const test::TempDir folder_;
  std::vector<std::vector<std::byte>> contents_;
  std::vector<EngineFile> files_;
};

constexpr const char* kWays[] = {"",
                                 "os.io_uring:errno=EACCES",
                                 "os.direct:errno=EINVAL",
                                 "os.io_uring:errno=EACCES;os.direct:errno=EINVAL",
                                 "read:short=100:times=5",
                                 "read:errno=EINTR:times=5",
                                 "read:short=100:times=5;os.io_uring:errno=EACCES"};

TEST_F(Reader, BringsAnyRangesInOrder) {
  for (const char* way : kWays) {
    SCOPED_TRACE(way);
    for (const std::uint64_t memory :
         {DiskReader::kLeastBytes, DiskReader::kLeastBytes + 4096, std::uint64_t{4} << 20}) {
      const Faults faults(way);
      expect_read({{0, 0, 3'000'000, 0}, {2, 0, 4096, 0}, {3, 0, 5, 0}}, memory);
      expect_read(
          {{0, 1, 2, 0}, {0, 4095, 4097, 0}, {0, 70'000, 1'234'567, 0}, {0, 2'999'999, 3'000'000, 0}, {3, 4, 5, 0}},
          memory);
    }
  }
}

TEST_F(Reader, SaysThatDirectWasRefusedAtATransfer) {
  if (os::file_system_of(folder_.path()).lives_in_memory()) GTEST_SKIP() << "nothing is direct in memory";
  for (const char* way : {"", ";os.io_uring:errno=EACCES"}) {
    const Faults faults(std::string("read:errno=EINVAL:times=1") + way);
    base::AlignedBuffer memory(std::uint64_t{1} << 20);
    DiskReader reader(memory.span());
    std::uint64_t compared = 0;
    const std::vector<plan::Extent> whole = {{0, 0, 3'000'000, 0}};
    reader.read(files_, whole, [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
      EXPECT_EQ(std::memcmp(data.data(), contents_[file].data() + offset, data.size()), 0);
      compared += data.size();
    });
    EXPECT_EQ(compared, 3'000'000U);
    EXPECT_EQ(reader.cached_bytes(), 3'000'000U) << way;
    EXPECT_THAT(reader.why_cached(), HasSubstr("O_DIRECT is refused on")) << way;
  }
}

TEST_F(Reader, SaysWhatFails) {
  base::AlignedBuffer memory(DiskReader::kLeastBytes);
  const auto error_of = [&](const plan::Extent& range) -> std::string {
    DiskReader reader(memory.span());
    std::string text = "no error";
    try {
      reader.read(files_, {&range, 1}, [](std::uint32_t, std::uint64_t, auto) {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      text = error.what();
    }
    os::set_faults("");
    std::uint64_t bytes = 0;  // the reader is usable again
    const plan::Extent whole{0, 0, 3'000'000, 0};
    reader.read(files_, {&whole, 1}, [&](std::uint32_t, std::uint64_t offset, std::span<const std::byte> data) {
      EXPECT_EQ(offset, bytes);
      EXPECT_EQ(std::memcmp(data.data(), contents_[0].data() + offset, data.size()), 0);
      bytes += data.size();
    });
    EXPECT_EQ(bytes, 3'000'000U);
    return text;
  };
  for (const char* way : {kWays[0], kWays[1], kWays[2], kWays[3]}) {
    SCOPED_TRACE(way);
    {
      const Faults faults(way);
      EXPECT_THAT(error_of({0, 2'999'000, 3'000'001, 0}), HasSubstr("ends at byte 3000000"));
    }
    const Faults faults(std::string("read:errno=EIO:after=1;") + way);
    EXPECT_THAT(error_of({0, 0, 3'000'000, 0}), HasSubstr("Input/output error"));
  }
}

TEST_F(Reader, DroppedPagesAreCounted) {
  const os::File file(files_[0].path, os::OpenMode::kRead);
  std::vector<std::byte> bytes(3'000'000);
  file.read_at(bytes, 0);
  const bool is_in_memory = os::file_system_of(folder_.path()).lives_in_memory();
  EXPECT_EQ(os::drop_cached(file, 0, 3'000'000), is_in_memory ? std::uint64_t{3'000'000} : 0);
  EXPECT_EQ(os::drop_cached(file, 5000, 10), is_in_memory ? std::uint64_t{10} : 0);
  EXPECT_EQ(os::drop_cached(file, 0, 0), 0U);
}

}  // namespace
}  // namespace cairn::io
