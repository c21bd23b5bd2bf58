// Files: complete transfers, every operation with its fault, and the state on disk after a fault.
#include "os/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/bytes.hpp"
#include "os_test_tools.hpp"
#include "random.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

using base::Bytes;
using test::TempDir;
using testing::HasSubstr;

Bytes some_bytes(std::size_t size) {
  auto random = test::make_random(size);
  return test::random_bytes(random, size);
}

Bytes read_back(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.is_open()) << path;
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const auto bytes = base::as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

std::size_t entries_in(const std::filesystem::path& path) { return list_directory(path).size(); }

TEST(File, WritesAndReadsAtOffsets) {
  const TempDir dir;
  const Bytes content = some_bytes(100000);
  {
    File file(dir / "f", OpenMode::kCreateNew);
    EXPECT_TRUE(file.is_open());
    EXPECT_EQ(file.path(), dir / "f");
    file.write_at(std::span(content).subspan(50000), 50000);
    file.write_at(std::span(content).first(50000), 0);
    file.write_at({}, 7);
    file.sync();
    EXPECT_EQ(file.size_bytes(), content.size());
    file.close();
    EXPECT_FALSE(file.is_open());
    file.close();  // closing it again does nothing
  }
  EXPECT_EQ(read_back(dir / "f"), content);
  const File file(dir / "f", OpenMode::kRead);
  Bytes part(1000);
  file.read_at(part, 99000);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), content.begin() + 99000));
  file.read_at({}, 1ULL << 40);
}

TEST(File, ModesDoWhatTheySay) {
  const TempDir dir;
  EXPECT_THAT(error_of(ErrorKind::kNotFound, [&] { File(dir / "f", OpenMode::kRead); }),
              HasSubstr("open for reading of '" + (dir / "f").string() + "' failed: No such file or directory"));
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { File(dir / "f", OpenMode::kWrite); }), "no error");
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { File(dir / "none" / "f", OpenMode::kCreateNew); }), "no error");
  File(dir / "f", OpenMode::kCreateNew).write_at(some_bytes(10), 0);
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { File(dir / "f", OpenMode::kCreateNew); }), HasSubstr("File exists"));
  try {
    File(dir / "f", OpenMode::kCreateNew);
    ADD_FAILURE() << "the file exists";
  } catch (const Error& error) {
    EXPECT_EQ(error.system_error(), EEXIST);
    EXPECT_EQ(error.path(), (dir / "f").native());
    EXPECT_EQ(error.rank(), -1) << "nobody asked the others";
    const Error copy = error.with_message("again");
    EXPECT_EQ(copy.kind(), ErrorKind::kIo);
    EXPECT_STREQ(copy.what(), "again");
    EXPECT_EQ(copy.system_error(), EEXIST);
    EXPECT_EQ(copy.path(), (dir / "f").native());
  }
  EXPECT_EQ(File(dir / "f", OpenMode::kWrite).size_bytes(), 10U);
  EXPECT_EQ(File(dir / "f", OpenMode::kCreateOrTruncate).size_bytes(), 0U);
  EXPECT_EQ(::fcntl(File(dir / "f", OpenMode::kRead).descriptor(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(File, MovingKeepsOneOwner) {
  const TempDir dir;
  File first(dir / "f", OpenMode::kCreateNew);
  const int descriptor = first.descriptor();
  File second = std::move(first);
  EXPECT_EQ(second.descriptor(), descriptor);
  EXPECT_FALSE(first.is_open());  // NOLINT: this is tested
  File third;
  third = std::move(second);
  third.write_at(some_bytes(3), 0);
  EXPECT_EQ(third.size_bytes(), 3U);
}

TEST(File, ReadingPastTheEndSaysWhereItEnds) {
  const TempDir dir;
  File(dir / "f", OpenMode::kCreateNew).write_at(some_bytes(10), 0);
  const File file(dir / "f", OpenMode::kRead);
  Bytes data(8);
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { file.read_at(data, 5); }), HasSubstr("ends at byte 10"));
}

TEST(File, OffsetsBeyondTheFileSystemAreErrors) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  Bytes data(8);
  EXPECT_NE(error_of(ErrorKind::kInternal, [&] { file.write_at(data, (1ULL << 63) - 4); }), "no error");
  EXPECT_NE(error_of(ErrorKind::kInternal, [&] { file.write_at(data, ~0ULL); }), "no error");
  EXPECT_NE(error_of(ErrorKind::kInternal, [&] { file.set_size(1ULL << 63); }), "no error");
}

TEST(File, LargeOffsetsAreExact) {
  const TempDir dir;
  for (const std::uint64_t offset : {(1ULL << 31) - 3, (1ULL << 32) - 3}) {
    const Bytes content = some_bytes(6);
    File file(dir / std::to_string(offset), OpenMode::kCreateNew);
    file.write_at(content, offset);
    EXPECT_EQ(file.size_bytes(), offset + 6);
    Bytes data(6);
    File(file.path(), OpenMode::kRead).read_at(data, offset);
    EXPECT_EQ(data, content);
  }
}

TEST(File, TransfersAboveTheKernelsLimitGoOn) {
  // Writes 3 GiB of untouched memory to a device that accepts everything: Linux moves at most 2 GiB less a page at a
  // time.
  constexpr std::size_t kBytes = 3ULL << 30;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  File file("/dev/null", OpenMode::kWrite);
  file.write_at({static_cast<const std::byte*>(memory), kBytes}, 0);
  const Faults faults("write:after=2");  // exactly two calls were needed
  file.write_at({static_cast<const std::byte*>(memory), kBytes}, 0);
  EXPECT_NE(error_of(ErrorKind::kIo,
                     [&] {
                       file.write_at({static_cast<const std::byte*>(memory), 1}, 0);
                     }),
            "no error");
  ::munmap(memory, kBytes);
}

TEST(File, ShortTransfersGoOn) {
  const TempDir dir;
  const Bytes content = some_bytes(1000);
  File file(dir / "f", OpenMode::kCreateNew);
  {
    const Faults faults("write:short=300:times=2;write:errno=EINTR:after=2");
    file.write_at(content, 5);
    EXPECT_FALSE(check_fault("write", "f")) << "the rules were not used";
  }
  EXPECT_EQ(file.size_bytes(), 1005U);
  Bytes data(1000);
  {
    const Faults faults("read:errno=EINTR;read:short=1:times=3");
    File(dir / "f", OpenMode::kRead).read_at(data, 5);
    EXPECT_FALSE(check_fault("read", "f")) << "the rules were not used";
  }
  EXPECT_EQ(data, content);
}

TEST(File, ErrorsOfTransfersNameOffsetAndRest) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  const Faults faults("write:short=300;write:errno=ENOSPC:after=1;read:errno=EIO");
  EXPECT_THAT(
      error_of(ErrorKind::kIo, [&] { file.write_at(some_bytes(1000), 5); }),
      HasSubstr("write of 700 bytes at offset 305 to '" + (dir / "f").string() + "' failed: No space left on device"));
  Bytes data(10);
  const File reader(dir / "f", OpenMode::kRead);
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { reader.read_at(data, 3); }),
              HasSubstr("read of 10 bytes at offset 3 from '" + (dir / "f").string() + "' failed: Input/output error"));
}

TEST(File, RealErrorsAreErrors) {
  File full("/dev/full", OpenMode::kWrite);
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { full.write_at(some_bytes(10), 0); }),
              HasSubstr("No space left on device"));
  const TempDir dir;
  File reader;
  File(dir / "f", OpenMode::kCreateNew).write_at(some_bytes(1), 0);
  reader = File(dir / "f", OpenMode::kRead);
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { reader.write_at(some_bytes(1), 0); }), HasSubstr("Bad file descriptor"));
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { reader.set_size(5); }), HasSubstr("setting the size to 5 bytes"));
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { reader.reserve(5); }), HasSubstr("reserving 5 bytes"));
}

TEST(File, EachOperationHasItsFault) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  const auto text_with = [](const char* rules, const std::function<void()>& call) {
    const Faults faults(rules);
    return error_of(ErrorKind::kIo, call);
  };
  EXPECT_THAT(text_with("open:errno=EACCES", [&] { File(dir / "f", OpenMode::kRead); }),
              HasSubstr("Permission denied"));
  EXPECT_THAT(text_with("fsync:errno=EDQUOT", [&] { file.sync(); }), HasSubstr("fsync of '"));
  EXPECT_THAT(text_with("truncate", [&] { file.set_size(9); }), HasSubstr("setting the size to 9 bytes of '"));
  EXPECT_THAT(text_with("truncate:errno=ENOSPC", [&] { file.reserve(9); }), HasSubstr("reserving 9 bytes for '"));
  EXPECT_EQ(file.size_bytes(), 0U);
  EXPECT_THAT(text_with("close", [&] { file.close(); }), HasSubstr("close of '"));
  EXPECT_FALSE(file.is_open());  // closed nevertheless
  {
    const Faults faults("open:errno=ENOENT");
    EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { File(dir / "f", OpenMode::kRead); }), "no error");
  }
  const Faults faults("open:errno=EINTR;fsync:errno=EINTR;truncate:errno=EINTR;close:errno=EINTR");
  File again(dir / "f", OpenMode::kWrite);
  again.set_size(4);
  again.sync();
  again.close();
}

TEST(File, SizesAndReservations) {
  const TempDir dir;
  File file(dir / "f", OpenMode::kCreateNew);
  file.set_size(1 << 20);
  EXPECT_EQ(file.size_bytes(), 1U << 20);
  EXPECT_TRUE(file.reserve(0));
  const bool can_reserve = file.reserve(2 << 20);
  struct stat status {};
  ASSERT_EQ(::stat((dir / "f").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, can_reserve ? 2 << 20 : 1 << 20);
  if (can_reserve) {
    EXPECT_GE(status.st_blocks * 512, 2 << 20);
  }
  file.set_size(10);
  EXPECT_EQ(file.size_bytes(), 10U);
  // procfs does not support fallocate.
  EXPECT_FALSE(File("/proc/self/comm", OpenMode::kWrite).reserve(10));
}

TEST(ReadText, HasALimit) {
  const TempDir dir;
  write_new_file(dir / "f", base::as_bytes("0123456789"));
  EXPECT_EQ(read_text(dir / "f", 10), "0123456789");
  EXPECT_THAT(error_of(ErrorKind::kFormat, [&] { read_text(dir / "f", 9); }), HasSubstr("has 10 bytes, but at most 9"));
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { read_text(dir / "g", 9); }), "no error");
  write_new_file(dir / "empty", {});
  EXPECT_EQ(read_text(dir / "empty", 0), "");
}

TEST(WriteNewFile, NeverReplaces) {
  const TempDir dir;
  write_new_file(dir / "f", base::as_bytes("old"));
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { write_new_file(dir / "f", base::as_bytes("new")); }), "no error");
  EXPECT_EQ(read_text(dir / "f", 10), "old");
}

TEST(ReplaceFile, MakesAndReplaces) {
  const TempDir dir;
  replace_file(dir / "f", base::as_bytes("first"));
  EXPECT_EQ(read_text(dir / "f", 10), "first");
  replace_file(dir / "f", base::as_bytes("2"));
  EXPECT_EQ(read_text(dir / "f", 10), "2");
  EXPECT_EQ(entries_in(dir.path()), 1U);
}

TEST(ReplaceFile, WorksInTheCurrentDirectory) {
  const TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  replace_file("bare-name", base::as_bytes("x"));
  std::filesystem::current_path(before);
  EXPECT_EQ(read_text(dir / "bare-name", 10), "x");
}

TEST(ReplaceFile, IsOldAfterEachFailureAndLeavesNothing) {
  const TempDir dir;
  replace_file(dir / "f", base::as_bytes("old"));
  for (const char* rule : {"open", "write", "write:after=1", "fsync", "close", "rename"}) {
    const std::string rules = std::string(rule) == "write:after=1" ? "write:short=1;write:after=1" : rule;
    {
      const Faults faults(rules);
      EXPECT_NE(error_of(ErrorKind::kIo, [&] { replace_file(dir / "f", base::as_bytes("newer")); }), "no error")
          << rules;
    }
    EXPECT_EQ(read_text(dir / "f", 10), "old") << rules;
    EXPECT_EQ(entries_in(dir.path()), 1U) << rules;
  }
  {
    const Faults faults("fsync:after=1");  // the directory's fsync: the new name exists, but perhaps not durably
    EXPECT_NE(error_of(ErrorKind::kIo, [&] { replace_file(dir / "f", base::as_bytes("newer")); }), "no error");
  }
  EXPECT_EQ(read_text(dir / "f", 10), "newer");
  EXPECT_EQ(entries_in(dir.path()), 1U);
}

TEST(File, ExclusiveCreationIsOfOne) {
  const TempDir directory;
  auto first = create_exclusively(directory / "f");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->path(), directory / "f");
  first->write_at(some_bytes(3), 0);
  EXPECT_FALSE(create_exclusively(directory / "f"));
  EXPECT_EQ(os::file_size(directory / "f"), 3U);
  const Faults faults("open:path=g:errno=EACCES");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { create_exclusively(directory / "g"); }),
              HasSubstr("creation of '" + (directory / "g").string() + "' failed: Permission denied"));
}

TEST(File, FlushReportsWhatClosingADescriptorWould) {
  const TempDir directory;
  File file(directory / "f", OpenMode::kCreateNew);
  file.write_at(some_bytes(3), 0);
  file.flush();
  file.write_at(some_bytes(3), 3);  // still open
  const Faults faults("close:path=f:errno=ENOSPC");
  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { file.flush(); }), HasSubstr("writing back of"));
}

TEST(File, ALockIsOfOneOpenFileAtATime) {
  const TempDir directory;
  File first(directory / "f", OpenMode::kCreateNew);
  File second(directory / "f", OpenMode::kWrite);
  {
    const FileLock held = first.try_lock();
    EXPECT_TRUE(held);
    EXPECT_FALSE(second.try_lock());
    FileLock moved = first.try_lock();
    EXPECT_TRUE(moved) << "it has it already";
  }
  FileLock taken = second.try_lock();
  ASSERT_TRUE(taken);
  std::atomic<bool> has_it = false;
  std::thread waiting([&] {
    const FileLock lock = first.lock([] {
      std::this_thread::yield();
      return true;
    });
    has_it = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_it);
  taken = {};
  waiting.join();
  EXPECT_TRUE(has_it);
  second.close();
  EXPECT_EQ(error_of(ErrorKind::kIo, [&] { second.try_lock(); }),
            "lock of '" + (directory / "f").string() + "' failed: Bad file descriptor");
}

}  // namespace
}  // namespace cairn::os
