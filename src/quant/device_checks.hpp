// What both device codecs check and fetch: spans against boxes, alignment, and the values behind a refusal.
#pragma once

#include <cstdint>

#include "quant/device_codec.hpp"

namespace cairn::quant {

/// Throws Error(kInternal) unless there is one span for each part, each of exactly its box's bytes and, where the codec asks
/// for it, aligned. part_box() of the codec checks the box itself.
void require_parts(const Codec& codec, const Source& source, const Box& box, ConstDeviceParts parts,
                   std::uint64_t alignment);

/// The two values at `index` of a box, fetched from the device. Waits for the stream.
struct RefusedValues {
  float m = 0;
  float v = 0;
};
[[nodiscard]] RefusedValues fetch_values(const ConstDeviceMoments& moments, std::uint64_t index,
                                         const gpu::Stream& stream);

}  // namespace cairn::quant
