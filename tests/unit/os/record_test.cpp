// The recorder of operations: name, path, rank, time; and no record while the recorder is off.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "faults.hpp"
#include "os/direct.hpp"
#include "os/file.hpp"
#include "os/io_queue.hpp"
#include "os/system_calls.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

/// The operations on one path, as words.
std::vector<std::string> names_of(const std::vector<os::Operation>& operations, const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (const os::Operation& operation : operations) {
    if (operation.path == path) names.push_back(operation.name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Record, HasWhatSucceededInItsOrder) {
  const TempDir dir;
  os::Recording recording;
  os::write_new_file(dir / "a", base::as_bytes(std::string("abc")));
  os::rename(dir / "a", dir / "b");
  os::sync_directory(dir.path());
  {
    const Faults faults("fsync");
    EXPECT_THROW(os::sync_directory(dir.path()), Error);
  }
  const auto operations = recording.take();
  EXPECT_EQ(names_of(operations, dir / "a"), (Names{"open", "write", "fsync"}));
  EXPECT_EQ(names_of(operations, dir / "b"), Names{"rename"});
  EXPECT_EQ(names_of(operations, dir.path()), (Names{"open", "fsync", "open"}));
  for (std::size_t i = 0; i < operations.size(); ++i) {
    EXPECT_LE(operations[i].begin_ns, operations[i].end_ns);
    if (i == 0) continue;
    EXPECT_LE(operations[i - 1].end_ns, operations[i].begin_ns);
  }
  EXPECT_TRUE(recording.take().empty());
}

TEST(Record, HasTheRankOfEveryThread) {
  const TempDir dir;
  os::Recording recording;
  std::thread([&] {
    os::set_fault_rank(7);
    os::make_new_directory(dir / "x");
  }).join();
  const auto operations = recording.take();
  ASSERT_EQ(operations.size(), 1U);
  EXPECT_EQ(operations[0].rank, 7);
  os::set_fault_rank(0);
}

TEST(Record, HasWritesThatTheKernelMadeMeanwhile) {
  const TempDir dir;
  os::write_new_file(dir / "a", {});
  os::File file(dir / "a", os::OpenMode::kWrite);
  os::Recording recording;
  std::optional<os::IoQueue> queue;
  try {
    queue.emplace(4);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const std::string text = "some text";
  queue->write({&file, &file, 1}, base::as_bytes(text), 0, 1);
  queue->finish(1);
  EXPECT_EQ(names_of(recording.take(), dir / "a"), Names{"write"});
}

TEST(Record, NothingWhileItIsOff) {
  const TempDir dir;
  { const os::Recording recording; }
  EXPECT_EQ(os::begin_record(), 0);
  os::make_new_directory(dir / "x");
  os::Recording recording;
  EXPECT_TRUE(recording.take().empty());
}

}  // namespace
}  // namespace cairn::test
