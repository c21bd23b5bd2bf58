// Pieces through a pipeline: every byte arrives, in order, within the budget; failures leave the pipeline usable.
#include "gpu/pipeline.hpp"

#include <numeric>

#include "cairn/error.hpp"
#include "device_fixture.hpp"
#include "random.hpp"

namespace cairn::gpu::test {
namespace {

struct Pipelines : OnDeviceTest {};

std::vector<std::byte> some_bytes(std::size_t size) {
  auto random = cairn::test::make_random();
  return cairn::test::random_bytes(random, size);
}

DeviceBuffer on_device(const std::vector<std::byte>& bytes) {
  DeviceBuffer buffer(bytes.size() + 1);
  const Stream stream;
  stream.copy(buffer.span().subspan(0, bytes.size()), bytes);
  stream.synchronise();
  return buffer;
}

const std::vector<PipelineOptions> kOptions = {{4096, 1, false},  {8192, 2, true},     {8192, 2, false},
                                               {20480, 3, false}, {8192 * 5, 5, true}, {1 << 20, 2, false}};

TEST_F(Pipelines, CopyDeviceMemoryToTheHost) {
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 4097U, 8192U, 100'000U}) {
    const auto bytes = some_bytes(size);
    const DeviceBuffer from = on_device(bytes);
    for (const PipelineOptions& options : kOptions) {
      Pipeline pipeline(options);
      std::vector<std::byte> found(size, std::byte{1});
      copy_to_host(pipeline, from.span().subspan(0, size), found);
      EXPECT_EQ(found, bytes) << options.slots;
    }
  }
}

TEST_F(Pipelines, ProduceIntoScratchAndConsumeInOrder) {
  const auto bytes = some_bytes(50'000);
  const DeviceBuffer from = on_device(bytes);
  Pipeline pipeline({8192, 2, true});
  std::vector<std::byte> found;
  std::uint64_t next = 0;
  pipeline.to_host(
      50,
      [&](std::uint64_t piece, DeviceSpan scratch, const Stream& stream) {
        const DeviceSpan part = scratch.subspan(0, 1000);
        stream.copy(part, ConstDeviceSpan(from.span()).subspan(1000 * piece, 1000));
        return part;
      },
      [&](std::uint64_t piece, std::span<const std::byte> part) {
        EXPECT_EQ(piece, next++);
        found.insert(found.end(), part.begin(), part.end());
      });
  EXPECT_EQ(found, bytes);
}

TEST_F(Pipelines, AnExceptionGoesOnAndThePipelineIsUsable) {
  const auto bytes = some_bytes(40'000);
  const DeviceBuffer from = on_device(bytes);
  Pipeline pipeline({8192, 2, false});
  for (const std::uint64_t at : {0U, 4096U, 36864U}) {
    const auto consume = [&](std::uint64_t offset, std::span<const std::byte>) {
      if (offset == at) throw Error(ErrorKind::kIo, "the caller's failure");
    };
    EXPECT_THROW(copy_to_host(pipeline, from.span(), consume), Error);
  }
  std::vector<std::byte> found(bytes.size() + 1);
  copy_to_host(pipeline, from.span(), found);
  found.pop_back();
  EXPECT_EQ(found, bytes);
}

TEST_F(Pipelines, WrongCalls) {
  EXPECT_THROW(Pipeline({4095, 1, false}), Error);
  EXPECT_THROW(Pipeline({1 << 20, 0, false}), Error);
  Pipeline pipeline({8192, 2, false});
  const DeviceBuffer memory(8192);
  std::vector<std::byte> small(10);
  EXPECT_THROW(copy_to_host(pipeline, memory.span(), small), Error);
  const auto too_much = [&](std::uint64_t, DeviceSpan, const Stream&) { return memory.span(); };
  EXPECT_THROW(pipeline.to_host(1, too_much, [](auto, auto) {}), Error);
  const Stream stream;
  EXPECT_THROW(stream.copy(std::span(small), memory.span()), Error);
}

}  // namespace
}  // namespace cairn::gpu::test
