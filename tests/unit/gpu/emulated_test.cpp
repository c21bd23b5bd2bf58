// Tests that only the emulated device allows: the memory of a pipeline, overlapping work,
// the effects of a failed kernel.
#include "emulated_runtime.hpp"

#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "gpu/pipeline.hpp"

namespace cairn::gpu::test {
namespace {

struct Emulated : testing::TestWithParam<emulated::Mode> {
  void SetUp() override { emulated::reset(GetParam()); }
  void TearDown() override {
    EXPECT_EQ(emulated::usage().device_bytes, 0u);
    EXPECT_EQ(emulated::usage().pinned_bytes, 0u);
    EXPECT_EQ(emulated::usage().streams, 0u);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, Emulated, testing::Values(emulated::Mode::kAsLateAsPossible, emulated::Mode::kAtOnce),
                         [](const auto& test) { return test.param == emulated::Mode::kAtOnce ? "AtOnce" : "Late"; });

TEST_P(Emulated, APipelineKeepsItsBudget) {
  const DeviceBuffer from(1 << 20);
  emulated::reset(GetParam());
  const std::uint64_t before = emulated::usage().device_bytes;
  std::vector<std::byte> to(1 << 20);
  Pipeline with({100'000, 3, true});
  copy_to_host(with, from.span(), to);
  EXPECT_LE(emulated::usage().most_pinned_bytes, 100'000u);
  EXPECT_LE(emulated::usage().most_device_bytes - before, 100'000u);
  EXPECT_EQ(with.piece_bytes(), 32768u);
  emulated::reset(GetParam());
  Pipeline without({50'000, 2, false});
  EXPECT_EQ(emulated::usage().most_device_bytes, emulated::usage().device_bytes);
}

TEST_P(Emulated, TheNextPieceIsUnderWayWhileOneIsConsumed) {
  const DeviceBuffer from(10 * 4096);
  Pipeline pipeline({2 * 4096, 2, false});
  std::uint64_t produced = 0;
  pipeline.to_host(
      10,
      [&](std::uint64_t piece, DeviceSpan, const Stream&) {
        ++produced;
        return from.span().subspan(piece * 4096, 4096);
      },
      [&](std::uint64_t piece, std::span<const std::byte>) {
        EXPECT_EQ(produced, std::min<std::uint64_t>(piece + 2, 10)) << "nothing under way";
      });
}

TEST_P(Emulated, WorkThatFailsIsReported) {
  const DeviceBuffer from(10 * 4096);
  Pipeline pipeline({2 * 4096, 2, false});
  std::vector<std::byte> to(10 * 4096);
  for (const std::uint64_t countdown : {1U, 5U, 10U}) {
    emulated::fail_work(countdown);
    EXPECT_THROW(copy_to_host(pipeline, from.span(), to), Error) << countdown;
    copy_to_host(pipeline, from.span(), to);
  }
}

TEST_P(Emulated, EventsOrderStreams) {
  const Stream first;
  const Stream second;
  const Event event;
  int step = 0;
  emulated::enqueue(first.handle(), [&] { EXPECT_EQ(step++, 0); });
  first.record(event);
  second.wait(event);
  emulated::enqueue(second.handle(), [&] { EXPECT_EQ(step++, 1); });
  second.synchronise();
  first.synchronise();
  EXPECT_EQ(step, 2);
}

TEST_P(Emulated, PointersAreKnown) {
  const DeviceBuffer device(100);
  const PinnedBuffer pinned(100);
  const int local = 0;
  EXPECT_EQ(place_of(device.span().data + 99).kind, MemoryKind::kDevice);
  EXPECT_EQ(place_of(pinned.span().data()).kind, MemoryKind::kPinned);
  EXPECT_EQ(place_of(&local).kind, MemoryKind::kHost);
  EXPECT_EQ(place_of(nullptr).kind, MemoryKind::kHost);
}

TEST_P(Emulated, DeviceMemoryIsNotForTheHost) {
  const DeviceBuffer device(100);
  volatile std::byte* first = device.span().data;
  EXPECT_DEATH(*first = std::byte{1}, "");
}

TEST_P(Emulated, WritesBehindTheEndAreSeen) {
  const auto write_behind = [] {
    const DeviceBuffer device(100);
    const Stream stream;
    emulated::enqueue(stream.handle(), [&] { device.span().data[100] = std::byte{1}; });
    stream.synchronise();
  };
  EXPECT_DEATH(write_behind(), "");
}

TEST_P(Emulated, BuffersMove) {
  DeviceBuffer a(100);
  std::byte* data = a.span().data;
  DeviceBuffer b(std::move(a));
  EXPECT_EQ(b.span().data, data);
  DeviceBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.span().data, data);
  EXPECT_EQ(c.size(), 100u);
}

}  // namespace
}  // namespace cairn::gpu::test
