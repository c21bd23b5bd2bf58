// Runs of device memory that bypass the windows: written and read in pieces, through slots that are smaller than a run.
// On the emulated device (ctest io_device) and on a GPU (io_device_gpu).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>

#include "base/bytes.hpp"
#include "device_memory_support.hpp"
#include "io/bypass_runs.hpp"
#include "os/file.hpp"
#include "plan/transfers.hpp"
#include "random.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kLong = BypassRuns::kShortestBytes;

/// A tensor whose rows are long enough for three long runs. The ranks divide its columns equally.
struct Columns {
  static constexpr std::uint64_t kRows = 5;
  static constexpr std::uint64_t kRowBytes = 3 * (kLong + 1000);

  explicit Columns(int ranks) : ranks_(static_cast<std::uint64_t>(ranks)) {
    stored.files = {{"f", kRows * kRowBytes}};
    stored.tensors = {{"model", "t", DType::kU8, {kRows, kRowBytes}, {{0, 0, {{0, 0}, {kRows, kRowBytes}}}}}};
  }
  [[nodiscard]] Box box_of(int rank) const {
    const std::uint64_t width = kRowBytes / ranks_;
    return {{0, width * static_cast<std::uint64_t>(rank)}, {kRows, width}};
  }
  /// The bytes of a box, cut out of the bytes of the file.
  [[nodiscard]] base::Bytes cut(const Box& box, const base::Bytes& all) const {
    base::Bytes bytes;
    for (std::uint64_t row = 0; row < kRows; ++row) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * kRowBytes + box.offset[1]);
      bytes.insert(bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(box.shape[1]));
    }
    return bytes;
  }

  format::StoredCheckpoint stored;

 private:
  std::uint64_t ranks_;
};

TEST(BypassDevice, WritesAndReadsBytesOfTheDeviceAndOfTheHost) {
  if (gpu::availability().devices == 0) GTEST_SKIP() << "no GPU: " << gpu::availability().reason;
  auto random = test::make_random();
  for (const int ranks : {1, 3}) {
    const Columns columns(ranks);
    const auto given = test::random_bytes(random, columns.stored.files[0].size_bytes);
    const base::Bytes content(given.begin(), given.end());
    const test::TempDir directory;
    const std::vector<EngineFile> files{{directory / "f", content.size()}};
    {
      os::File created(files[0].path, os::OpenMode::kCreateNew);
      created.set_size(content.size());
    }
    std::mutex mutex;
    base::Bytes seen(content.size());
    const auto see = [&](std::uint32_t, std::uint64_t offset, std::span<const std::byte> data) {
      const std::lock_guard lock(mutex);
      std::copy(data.begin(), data.end(), seen.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    std::atomic<int> wrong = 0;
    comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
      const Box box = columns.box_of(communicator.rank());
      base::Bytes host = columns.cut(box, content);
      const base::Bytes expected = host;
      const test::DeviceBytes device(host);
      plan::MemoryBox memory{0, box, host, Memory::kHost};
      if (communicator.rank() % 2 == 0) {
        memory.bytes = {device.data(), device.size()};
        memory.memory = Memory::kDevice;
      }
      const std::span<const plan::MemoryBox> boxes(&memory, 1);
      const BypassRuns runs(
          plan::regions_of_memory(plan::whole_pieces(communicator.rank(), boxes), boxes, columns.stored));
      DeviceCopies copies(DeviceCopies::kLeastBytes);
      write_bypass(communicator, files, runs, {boxes, &copies}, see);
      communicator.barrier();
      if (seen != content) ++wrong;
      communicator.barrier();
      if (communicator.rank() == 0) std::fill(seen.begin(), seen.end(), std::byte{0});
      communicator.barrier();

      base::Bytes found(expected.size());
      const test::DeviceBytes place(found);
      memory.bytes = memory.memory == Memory::kHost ? std::span(found) : std::span(place.data(), place.size());
      BypassFiles reading(files);
      read_bypass(communicator, reading, runs, {boxes, &copies}, see);
      if (memory.memory == Memory::kDevice) found = place.bytes();
      if (found != expected) ++wrong;
      communicator.barrier();
      if (seen != content) ++wrong;
    });
    EXPECT_EQ(wrong, 0) << ranks;
    base::Bytes written(content.size());
    os::File(files[0].path, os::OpenMode::kRead).read_at(written, 0);
    EXPECT_TRUE(written == content) << ranks;
  }
}

}  // namespace
}  // namespace cairn::io
