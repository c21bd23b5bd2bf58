// Codes a box of moments in device memory and copies the codes to the host in pieces. Kernel, copy and the
// caller's work overlap (gpu/pipeline.hpp); only codes and scales leave the device.
//
// Requires: the device memory is ready (not being written). Rank-local.
#pragma once

#include <functional>

#include "gpu/pipeline.hpp"
#include "quant/device_codec.hpp"

namespace cairn::quant {

/// A box of one part on the host.
struct PartPiece {
  std::size_t part = 0;
  Box box;                           ///< in the part's coordinates
  std::span<const std::byte> bytes;  ///< exactly the bytes of the box
};

/// Cuts a box into smaller boxes, in order, so that all parts of each fit `most_bytes`. Rows that share scales stay
/// together if they fit. Throws Error(kUsage) if not even a block or a row fits.
[[nodiscard]] std::vector<Box> staged_boxes(const Codec& codec, const Shape& shape, const Box& box,
                                            std::uint64_t most_bytes);

/// Calls consume() for pieces that together are the box's piece of each part; scales that belong to two pieces can come
/// with both. Throws like DeviceCodec, perhaps after some pieces were consumed.
void encode_to_host(gpu::Pipeline& pipeline, const DeviceCodec& codec, const Source& source, const Box& box,
                    const ConstDeviceMoments& moments, const Statistics& statistics,
                    const std::function<void(const PartPiece&)>& consume);

}  // namespace cairn::quant
