// Moments and parts on a device for tests, and comparisons of the results of device and host.
//
// The same tests run twice: on the emulated device (ctest quant_lanes), and on a GPU (quant_gpu, label gpu),
// where they are skipped with the reason if there is none.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "golden_file.hpp"
#include "quant/device_codec.hpp"

namespace cairn::quant::test {

/// Skips every test of the suite if there is no device.
struct OnDeviceTest : testing::Test {
  void SetUp() override {
    const gpu::Availability devices = gpu::availability();
    if (devices.devices == 0) GTEST_SKIP() << "no GPU: " << devices.reason;
  }
};

/// Floats in device memory that begin `shift` floats after a multiple of 256 bytes.
class DeviceFloats {
 public:
  DeviceFloats(const std::vector<float>& values, std::size_t shift, const gpu::Stream& stream)
      : shift_(shift), count_(values.size()), buffer_((count_ + shift_ + 1) * 4) {
    stream.copy(span(), std::as_bytes(std::span(values)));
    stream.synchronise();
  }

  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(span().data); }
  [[nodiscard]] gpu::DeviceSpan span() const { return buffer_.span().subspan(shift_ * 4, count_ * 4); }

 private:
  std::size_t shift_;
  std::size_t count_;
  gpu::DeviceBuffer buffer_;
};

/// Both moments; m begins `shift` floats after a multiple of 256 bytes, v twice as many.
struct DeviceState {
  DeviceState(const State& state, std::size_t shift, const gpu::Stream& stream)
      : m(state.m, shift, stream), v(state.v, 2 * shift, stream) {}

  [[nodiscard]] ConstDeviceMoments view() const { return {m.data(), v.data()}; }

  DeviceFloats m;
  DeviceFloats v;
};

/// The parts of a box, one buffer each, with bytes around them that must not be touched.
class PartsOnDevice {
 public:
  PartsOnDevice(const Codec& codec, const Source& source, const Box& box);

  [[nodiscard]] std::vector<gpu::DeviceSpan> spans() const;
  /// Returns the parts; fails the test if a byte around a part has changed.
  [[nodiscard]] Encoded download(const gpu::Stream& stream) const;

 private:
  std::vector<std::uint64_t> sizes_;
  std::vector<gpu::DeviceBuffer> buffers_;
};

/// Result of encoding a box: bytes, or the error's message.
struct Answer {
  std::optional<ErrorKind> kind;
  std::string error;
  Encoded parts;
};

struct Job {
  const Codec& codec;
  Source source;
  Box box;
  std::size_t shift = 0;
};

/// Both functions: `statistics` must cover the box.
Answer encoded_on_host(const Job& job, const State& state, const Statistics& statistics);
Answer encoded_on_device(const Job& job, const State& state, const Statistics& statistics);

/// Success if both refused with the same message or gave the same bytes. NaN equals NaN in scales.
testing::AssertionResult same_answer(const Codec& codec, const Source& source, const Answer& found,
                                     const Answer& expected);

/// Encodes the state on the host and on the device, and compares the results.
void expect_same_coding(const Job& job, const State& state);

}  // namespace cairn::quant::test
