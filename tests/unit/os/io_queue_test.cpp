// Requests in flight: bytes, groups, short transfers, failures; with O_DIRECT if the test folder's file system has it.
#include "os/io_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstring>
#include <exception>
#include <new>

#include "base/aligned_buffer.hpp"
#include "cairn/error.hpp"
#include "failing_allocation.hpp"
#include "os/direct.hpp"
#include "os/fault.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBytes = 64 * kPage;

class Queue : public testing::Test {
 protected:
  Queue() : data_(kBytes), back_(kBytes) {
    for (std::size_t i = 0; i < kBytes; ++i) data_.span()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    File(path_, OpenMode::kCreateNew).set_size(kBytes);
    plain_ = File(path_, OpenMode::kWrite);
    direct_ = open_direct(path_, OpenMode::kWrite);
    to_write_ = direct_.refusal.empty() ? IoQueue::Target{&direct_.file, &plain_, direct_.alignment}
                                        : IoQueue::Target{&plain_, &plain_, 1};
  }
  ~Queue() override { set_faults(""); }

  std::string error_of_finish(IoQueue& queue, std::uint64_t group) {
    try {
      queue.finish(group);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      return error.what();
    }
    return "no error";
  }
  void expect_written() {
    File(path_, OpenMode::kRead).read_at(back_.span(), 0);
    EXPECT_EQ(std::memcmp(back_.span().data(), data_.span().data(), kBytes), 0);
  }
  void write_all(IoQueue& queue, std::uint64_t request_bytes, std::uint64_t groups) {
    for (std::uint64_t at = 0, n = 0; at < kBytes; at += request_bytes, ++n) {
      queue.write(to_write_, data_.span().subspan(at, request_bytes), at, n % groups);
    }
    for (std::uint64_t group = groups; group-- > 0;) queue.finish(group);
  }

  const test::TempDir folder_;
  const std::filesystem::path path_ = folder_.path() / "f";
  base::AlignedBuffer data_;
  base::AlignedBuffer back_;
  File plain_;
  DirectFile direct_;
  IoQueue::Target to_write_;
};

TEST_F(Queue, WritesAndReadsWithMoreRequestsThanDepth) {
  IoQueue queue(4);
  write_all(queue, kPage, 3);
  expect_written();
  File plain(path_, OpenMode::kRead);
  DirectFile direct = open_direct(path_, OpenMode::kRead);
  const IoQueue::Target from{direct.refusal.empty() ? &direct.file : &plain, &plain, kPage};
  std::memset(back_.span().data(), 0, kBytes);
  for (std::uint64_t at = 0; at < kBytes; at += 4 * kPage) queue.read(from, back_.span().subspan(at, 4 * kPage), at, 9);
  queue.finish(9);
  EXPECT_EQ(std::memcmp(back_.span().data(), data_.span().data(), kBytes), 0);
  queue.finish(9);  // group 9 is empty
  queue.finish(77);
}

TEST_F(Queue, GoesOnAfterShortAndInterruptedTransfers) {
  for (const char* rules : {"write:short=100", "write:short=4096:after=2", "write:errno=EINTR:times=3"}) {
    SCOPED_TRACE(rules);
    File(path_, OpenMode::kCreateOrTruncate).set_size(kBytes);
    IoQueue queue(8);
    set_faults(rules);
    write_all(queue, 8 * kPage, 1);
    set_faults("");
    expect_written();
  }
}

TEST_F(Queue, TellsTheFirstFailureOfTheGroupAndOnlyThere) {
  IoQueue queue(8);
  set_faults("write:errno=ENOSPC:after=1:times=1");
  queue.write(to_write_, data_.span().first(kPage), 0, 1);
  queue.write(to_write_, data_.span().subspan(kPage, 2 * kPage), kPage, 2);
  queue.write(to_write_, data_.span().subspan(3 * kPage, kPage), 3 * kPage, 3);
  const std::string text = error_of_finish(queue, 2);
  EXPECT_THAT(text, HasSubstr("write of 8192 bytes at offset 4096 to"));
  EXPECT_THAT(text, HasSubstr(path_.string()));
  EXPECT_THAT(text, HasSubstr("No space left on device"));
  EXPECT_EQ(error_of_finish(queue, 1), "no error");
  EXPECT_EQ(error_of_finish(queue, 3), "no error");
}

TEST_F(Queue, ReportsTheEndOfAFile) {
  IoQueue queue(8);
  File plain(path_, OpenMode::kRead);
  queue.read({&plain, &plain, 1}, back_.span().first(2 * kPage), kBytes - kPage, 1);
  EXPECT_THAT(error_of_finish(queue, 1), HasSubstr("ends at byte " + std::to_string(kBytes)));
}

TEST_F(Queue, GoesThroughThePageCacheWhereDirectIsRefusedAtATransfer) {
  if (!direct_.refusal.empty()) GTEST_SKIP() << direct_.refusal;
  for (const char* error : {"EINVAL", "ENOTSUP", "524"}) {
    IoQueue queue(4);
    set_faults(std::string("write:times=1:errno=") + error);
    write_all(queue, 4 * kPage, 3);
    expect_written();
    EXPECT_EQ(fault_hits(), 1U);
    EXPECT_THAT(queue.refusal(), HasSubstr("O_DIRECT is refused on"));
    set_faults("");
    File(path_, OpenMode::kWrite).set_size(0);
    File(path_, OpenMode::kWrite).set_size(kBytes);
  }
  IoQueue queue(4);  // a refusal is an error for a file without O_DIRECT
  set_faults("write:errno=EINVAL");
  queue.write({&plain_, &plain_, 1}, data_.span().first(kPage), 0, 1);
  EXPECT_THAT(error_of_finish(queue, 1), HasSubstr("Invalid argument"));
}

TEST_F(Queue, ReportsWhatTheKernelRefuses) {
  IoQueue queue(8);
  File wrong(path_, OpenMode::kRead);
  queue.write({&wrong, &wrong, 1}, data_.span().first(kPage), 0, 1);
  EXPECT_THAT(error_of_finish(queue, 1), HasSubstr("Bad file descriptor"));
}

TEST_F(Queue, WaitsForItsRequestsWhenDestroyed) {
  {
    IoQueue queue(4);
    queue.write(to_write_, data_.span(), 0, 1);
  }
  expect_written();
}

TEST_F(Queue, WaitsForNoRequestThatMemoryWasShortFor) {
  std::uint64_t told = 0;
  bool is_over = false;
  for (std::uint64_t n = 1; !is_over; ++n) {
    IoQueue queue(2);
    set_faults("write:short=4096:times=8");  // the rest of a request is queued again
    bool is_told = false;
    test::FailingAllocation failing(n);
    try {
      for (std::uint64_t at = 0; at < kBytes; at += 2 * kPage) {
        queue.write(to_write_, data_.span().subspan(at, 2 * kPage), at, 1);
      }
    } catch (const std::bad_alloc&) {
      is_told = true;
    }
    try {
      queue.finish(1);
    } catch (const std::exception&) {
      is_told = true;
    }
    failing.stop();
    is_over = !failing.has_failed();
    EXPECT_EQ(is_told, !is_over) << "allocation " << n;
    told += is_told ? 1 : 0;
  }
  EXPECT_GT(told, 3U);
}

TEST_F(Queue, SaysWhyIoUringIsRefused) {
  set_faults("os.io_uring:errno=EACCES");
  try {
    const IoQueue queue(8);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("io_uring is refused: Permission denied"));
  }
}

TEST_F(Queue, DirectIsRefusedOnFileSystemsInMemory) {
  if (file_system_of("/dev/shm").type != "tmpfs") GTEST_SKIP() << "/dev/shm is not a tmpfs";
  const std::filesystem::path path = "/dev/shm/cairn-io-queue-test-" + std::to_string(::getpid());
  File(path, OpenMode::kCreateNew).set_size(kPage);
  EXPECT_THAT(open_direct(path, OpenMode::kWrite).refusal, HasSubstr("O_DIRECT is refused on tmpfs"));
  remove_tree(path);
}

}  // namespace
}  // namespace cairn::os
