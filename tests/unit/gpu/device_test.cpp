// The runtime's own calls on a GPU: copies, fills, events, and the answers about pointers and missing memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cairn/error.hpp"
#include "device_fixture.hpp"
#include "gpu/stream.hpp"

namespace cairn::gpu::test {
namespace {

struct Device : OnDeviceTest {};

TEST_F(Device, PointersAreKnown) {
  const DeviceBuffer device(100);
  const PinnedBuffer pinned(100);
  const int local = 0;
  EXPECT_EQ(place_of(device.span().data + 99).kind, MemoryKind::kDevice);
  EXPECT_EQ(place_of(device.span().data).device, current_device());
  EXPECT_EQ(place_of(pinned.span().data()).kind, MemoryKind::kPinned);
  EXPECT_EQ(place_of(&local).kind, MemoryKind::kHost);
  EXPECT_THAT(describe_device(0), testing::HasSubstr("compute capability"));
}

TEST_F(Device, CopiesAndFills) {
  const Stream stream;
  const DeviceBuffer a(1000);
  const DeviceBuffer b(1000);
  const PinnedBuffer pinned(1000);
  stream.fill(a.span(), 0x42);
  stream.copy(b.span(), a.span());
  stream.copy(pinned.span(), b.span());
  stream.synchronise();
  EXPECT_EQ(std::vector<std::byte>(pinned.span().begin(), pinned.span().end()),
            std::vector<std::byte>(1000, std::byte{0x42}));
}

TEST_F(Device, CopiesRowsThatLieFurtherApartThanAPitchMay) {
  constexpr std::uint64_t kStride = (std::uint64_t{1} << 31) + 512;
  const Stream stream;
  const DeviceBuffer device(kStride + 16);
  const PinnedBuffer pinned(32);
  stream.fill(device.span().subspan(0, 16), 1);
  stream.fill(device.span().subspan(kStride, 16), 2);
  stream.copy_rows({pinned.span().data(), 16, device.span().data, kStride, 16, 2});
  stream.synchronise();
  std::vector<std::byte> expected(32, std::byte{1});
  std::fill(expected.begin() + 16, expected.end(), std::byte{2});
  EXPECT_EQ(std::vector<std::byte>(pinned.span().begin(), pinned.span().end()), expected);
}

TEST_F(Device, EventsOrderStreamsAndTakeTime) {
  const Stream first;
  const Stream second;
  const Event begin;
  const Event end;
  const DeviceBuffer memory(64 << 20);
  std::vector<std::byte> last(1);
  first.record(begin);
  for (unsigned char i = 0; i < 20; ++i) first.fill(memory.span(), i);
  first.record(end);
  second.wait(end);
  second.copy(last, memory.span().subspan(memory.size() - 1, 1));
  second.synchronise();
  EXPECT_EQ(last[0], std::byte{19});
  EXPECT_GT(runtime::elapsed_ms(begin.handle(), end.handle()), 0);
}

TEST_F(Device, MemoryThatIsNotThereIsRefusedAndNothingElseBreaks) {
  try {
    const DeviceBuffer buffer(std::uint64_t{1} << 50);
    ADD_FAILURE() << "a petabyte was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("out of memory"));
  }
  const Stream stream;
  const DeviceBuffer buffer(100);
  stream.fill(buffer.span(), 1);
  stream.synchronise();
}

}  // namespace
}  // namespace cairn::gpu::test
