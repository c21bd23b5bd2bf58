// Codecs whose moments and parts lie in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/stream.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

// A codec whose moments and parts lie in device memory: Codec's steps as kernels, with the same results to the bit.
//
// The shapes, boxes, parts and statistics are Codec's. What is put on a stream runs later: refusals are known when the
// stream has been synchronised, and raise() throws them then, with the text that Codec throws for the same values.
//
// Device memory given here must be ready (nothing is writing it) and stay until the stream is synchronised. Moments may
// begin at any float; at a multiple of 16 bytes they are read and written fastest. Parts of q8 and q4 begin at a
// multiple of 8, scales at one of 4.

/// A box of both moments in device memory, row-major without gaps.
struct ConstDeviceMoments {
  const float* m = nullptr;
  const float* v = nullptr;
};
struct DeviceMoments {
  float* m = nullptr;
  float* v = nullptr;
};

using DeviceParts = std::span<const gpu::DeviceSpan>;            ///< one per part, exactly its box's bytes
using ConstDeviceParts = std::span<const gpu::ConstDeviceSpan>;  ///< one per part, exactly its box's bytes

/// What a kernel refused: the number of the first element or block. Belongs to one call at a time, whose stream has to
/// be synchronised before it goes or is used again.
class Verdict {
 public:
  Verdict();

  /// For the codecs: begins with nothing refused, and brings the answer to the host, both in the order of the stream.
  void begin(const gpu::Stream& stream);
  void fetch(const gpu::Stream& stream);
  [[nodiscard]] std::uint64_t* slot() const;
  /// Pinned memory for what the call copies to the device. (A copy from other memory may wait for the stream.)
  [[nodiscard]] std::span<std::byte> room(std::uint64_t bytes);

  /// After the stream has been synchronised.
  [[nodiscard]] bool is_good() const;
  [[nodiscard]] std::uint64_t first_refused() const;

 private:
  gpu::DeviceBuffer slot_;
  gpu::PinnedBuffer answer_;
  gpu::PinnedBuffer room_;
};

/// Thread-safe and without state, as Codec. Throws as Codec does for wrong calls; Error(kUsage) without CUDA,
/// Error(kIo) when the device refuses.
class DeviceCodec {
 public:
  DeviceCodec() = default;
  DeviceCodec(const DeviceCodec&) = delete;
  DeviceCodec& operator=(const DeviceCodec&) = delete;
  virtual ~DeviceCodec() = default;

  [[nodiscard]] virtual const Codec& codec() const = 0;

  /// Takes the values of a box into statistics that cover it, and waits for it. Throws what refuse_unusual_moments()
  /// throws. With kWholeBlocks: does nothing.
  virtual void measure(const Source& source, const Box& box, const ConstDeviceMoments& moments, Statistics& into,
                       const gpu::Stream& stream) const = 0;

  /// `statistics` may go when the call returns, `verdict` only after the stream has been synchronised.
  virtual void encode(const Source& source, const Box& box, const ConstDeviceMoments& moments,
                      const Statistics& statistics, DeviceParts out, Verdict& verdict,
                      const gpu::Stream& stream) const = 0;

  virtual void decode(const Source& source, const Box& box, ConstDeviceParts parts, const DecodeOptions& options,
                      const DeviceMoments& out, Verdict& verdict, const gpu::Stream& stream) const = 0;

  /// Throws when encode() refused a value. Requires: the stream has been synchronised, the moments are still there.
  virtual void raise_encode(const Source& source, const Box& box, const ConstDeviceMoments& moments,
                            const Verdict& verdict, const gpu::Stream& stream) const = 0;
  /// Throws when decode() found a code that is not in use.
  virtual void raise_decode(const Source& source, const Box& box, const Verdict& verdict) const = 0;
};

/// The device's side of a codec of codec.hpp: there is one for each. Throws Error(kUsage) for another.
[[nodiscard]] const DeviceCodec& device_codec_of(const Codec& codec);

// What both device codecs check and fetch: spans against boxes, alignment, and the values behind a refusal.

/// Throws Error(kInternal) unless there is one span for each part, each of exactly its box's bytes and, where the codec
/// asks for it, aligned. part_box() of the codec checks the box itself.
void require_parts(const Codec& codec, const Source& source, const Box& box, ConstDeviceParts parts,
                   std::uint64_t alignment);

/// The two values at `index` of a box, fetched from the device. Waits for the stream.
struct RefusedValues {
  float m = 0;
  float v = 0;
};
[[nodiscard]] RefusedValues fetch_values(const ConstDeviceMoments& moments, std::uint64_t index,
                                         const gpu::Stream& stream);

// q8 and q4 on a device.

[[nodiscard]] const DeviceCodec& own_q8_on_device();
[[nodiscard]] const DeviceCodec& own_q4_on_device();

// PaddlePaddle's O1 and O2 on a device.

[[nodiscard]] const DeviceCodec& paddle_o1_on_device();
[[nodiscard]] const DeviceCodec& paddle_o2_on_device();

}  // namespace cairn::quant
