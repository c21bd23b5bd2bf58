// Copies of rows on a stream: strides on either side, contiguous rows, empty copies, invalid calls.
#include "gpu/stream.hpp"

#include <algorithm>

#include "cairn/error.hpp"
#include "device_fixture.hpp"
#include "random.hpp"

namespace cairn::gpu::test {
namespace {

struct Streams : OnDeviceTest {};

constexpr std::byte kUntouched{0x3C};

/// Rows of a plane of `rows * stride` bytes.
struct Rows {
  std::uint64_t stride;
  std::uint64_t row_bytes;
  std::uint64_t rows;
};

const std::vector<Rows> kRows = {{7, 7, 5}, {100, 3, 20}, {4096, 1000, 9}, {64, 1, 1000}, {300, 300, 1}, {8, 2, 1}};

TEST_F(Streams, CopyRowsToTheHostEndToEnd) {
  auto random = cairn::test::make_random();
  for (const Rows& r : kRows) {
    const auto plane = cairn::test::random_bytes(random, r.stride * r.rows);
    const DeviceBuffer device(plane.size());
    const Stream stream;
    stream.copy(device.span(), plane);
    const PinnedBuffer pinned(r.row_bytes * r.rows);
    stream.copy_rows({pinned.span().data(), r.row_bytes, device.span().data, r.stride, r.row_bytes, r.rows});
    stream.synchronise();
    for (std::uint64_t row = 0; row < r.rows; ++row) {
      EXPECT_TRUE(std::equal(pinned.span().begin() + static_cast<std::ptrdiff_t>(row * r.row_bytes),
                             pinned.span().begin() + static_cast<std::ptrdiff_t>((row + 1) * r.row_bytes),
                             plane.begin() + static_cast<std::ptrdiff_t>(row * r.stride)))
          << r.stride << ' ' << r.row_bytes << ", row " << row;
    }
  }
}

TEST_F(Streams, CopyRowsToTheDeviceAndLeaveWhatLiesBetween) {
  auto random = cairn::test::make_random();
  for (const bool is_pinned : {true, false}) {
    for (const Rows& r : kRows) {
      std::vector<std::byte> given = cairn::test::random_bytes(random, r.row_bytes * r.rows);
      const PinnedBuffer pinned(given.size());
      std::copy(given.begin(), given.end(), pinned.span().begin());
      const DeviceBuffer device(r.stride * r.rows);
      const Stream stream;
      stream.fill(device.span(), static_cast<unsigned char>(kUntouched));
      stream.copy_rows({device.span().data, r.stride, is_pinned ? pinned.span().data() : given.data(), r.row_bytes,
                        r.row_bytes, r.rows});
      std::vector<std::byte> found(device.size());
      stream.copy(found, device.span());
      stream.synchronise();
      std::vector<std::byte> expected(device.size(), kUntouched);
      for (std::uint64_t row = 0; row < r.rows; ++row) {
        std::copy_n(given.begin() + static_cast<std::ptrdiff_t>(row * r.row_bytes), r.row_bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(row * r.stride));
      }
      EXPECT_TRUE(found == expected) << r.stride << ' ' << r.row_bytes << ' ' << is_pinned;
    }
  }
}

TEST_F(Streams, CopyNoRows) {
  const DeviceBuffer device(16);
  const Stream stream;
  stream.copy_rows({device.span().data, 4, nullptr, 4, 4, 0});
  stream.copy_rows({device.span().data, 4, nullptr, 4, 0, 4});
  stream.synchronise();
}

TEST_F(Streams, RefuseRowsThatOverlap) {
  const DeviceBuffer device(64);
  const PinnedBuffer pinned(64);
  const Stream stream;
  EXPECT_THROW(stream.copy_rows({pinned.span().data(), 8, device.span().data, 7, 8, 2}), Error);
  EXPECT_THROW(stream.copy_rows({pinned.span().data(), 7, device.span().data, 8, 8, 2}), Error);
}

}  // namespace
}  // namespace cairn::gpu::test
