// Codecs on device memory.
#pragma once

#include <cstdint>
#include <span>

#include "gpu/stream.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

// DeviceCodec measures and encodes like Codec, by kernels on moments and parts in device memory, with bit-identical
// results. The host decodes.
//
// Shapes, boxes, parts and statistics are the same as Codec's. encode() only enqueues work on a stream: its refusals
// are known when the stream has been synchronised, and then raise_encode() throws them with Codec's messages.
//
// Device memory passed here must be ready (not being written) and stay valid until the stream is synchronised. Moments
// can begin at any float, but are read fastest from a multiple of 16 bytes. Parts of q8 and q4 must begin at a multiple
// of 8 bytes, scales at a multiple of 4.

/// A box of both moments in device memory, row-major without gaps.
struct ConstDeviceMoments {
  const float* m = nullptr;
  const float* v = nullptr;
};

using DeviceParts = std::span<const gpu::DeviceSpan>;  ///< one per part: exactly the bytes of the part's box

/// The number of the first element that a kernel refused. A Verdict belongs to one call at a time, and that call's
/// stream must be synchronised before the object is destroyed or used again.
class Verdict {
 public:
  Verdict();

  /// For the codecs: on the stream, begin() resets the answer and fetch() copies it to the host.
  void begin(const gpu::Stream& stream);
  void fetch(const gpu::Stream& stream);
  [[nodiscard]] std::uint64_t* slot() const;
  /// Pinned memory for copies to the device during the call. (A copy from any other memory may wait for the stream.)
  [[nodiscard]] std::span<std::byte> room(std::uint64_t bytes);

  /// Both calls require that the stream has been synchronised.
  [[nodiscard]] bool is_good() const;
  [[nodiscard]] std::uint64_t first_refused() const;

 private:
  gpu::DeviceBuffer slot_;
  gpu::PinnedBuffer answer_;
  gpu::PinnedBuffer room_;
};

/// Thread-safe and without state, like Codec. Throws Error(kInternal) for wrong calls, as Codec does; Error(kUsage) in
/// a build without CUDA; Error(kIo) if the device fails.
class DeviceCodec {
 public:
  DeviceCodec() = default;
  DeviceCodec(const DeviceCodec&) = delete;
  DeviceCodec& operator=(const DeviceCodec&) = delete;
  virtual ~DeviceCodec() = default;

  [[nodiscard]] virtual const Codec& codec() const = 0;

  /// Adds the values of a box to statistics that cover it, and waits for the result. Throws as refuse_unusual_moments()
  /// does. With kWholeBlocks: does nothing.
  virtual void measure(const Source& source, const Box& box, const ConstDeviceMoments& moments, Statistics& into,
                       const gpu::Stream& stream) const = 0;

  /// `statistics` must stay valid until the call returns, `verdict` until the stream has been synchronised.
  virtual void encode(const Source& source, const Box& box, const ConstDeviceMoments& moments,
                      const Statistics& statistics, DeviceParts out, Verdict& verdict,
                      const gpu::Stream& stream) const = 0;

  /// Throws if encode() refused a value. Requires: the stream has been synchronised, and the moments are still valid.
  virtual void raise_encode(const Source& source, const Box& box, const ConstDeviceMoments& moments,
                            const Verdict& verdict, const gpu::Stream& stream) const = 0;
};

/// The device codec for a codec of all_codecs(). Throws Error(kUsage) for any other codec.
[[nodiscard]] const DeviceCodec& device_codec_of(const Codec& codec);

// Common to the device codecs: checks of the spans' sizes and alignment, and the values that were refused.

/// Throws Error(kInternal) unless there is one span for each part, with exactly the bytes of its box, and codes are
/// aligned to `alignment` and scales to 4 bytes. The codec's part_box() checks the box itself.
void require_parts(const Codec& codec, const Source& source, const Box& box, DeviceParts parts,
                   std::uint64_t alignment);

/// The two values at `index` of a box. fetch_values() copies them from the device, and waits for the stream.
struct RefusedValues {
  float m = 0;
  float v = 0;
};
[[nodiscard]] RefusedValues fetch_values(const ConstDeviceMoments& moments, std::uint64_t index,
                                         const gpu::Stream& stream);

}  // namespace cairn::quant
