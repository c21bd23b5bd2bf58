// A box of moments in device memory, coded there and brought to the host in pieces, and the way back: kernel, copy and
// the caller's work overlap (gpu/pipeline.hpp), and what is not coded never leaves the device.
//
// The device memory is ready: nothing is writing it. Rank-local.
#pragma once

#include <functional>

#include "gpu/pipeline.hpp"
#include "quant/device_codec.hpp"

namespace cairn::quant {

/// A box of one part on the host.
template <class Bytes>
struct PartPiece {
  std::size_t part = 0;
  Box box;      ///< in the part's coordinates
  Bytes bytes;  ///< exactly the box's
};

/// The boxes, in order, into which a box is cut so that all parts of each fit `most_bytes`. Rows are cut between groups
/// that share scales where a group fits. Throws Error(kUsage) when not even a block or a row fits.
[[nodiscard]] std::vector<Box> staged_boxes(const Codec& codec, const Shape& shape, const Box& box,
                                            std::uint64_t most_bytes);

/// Calls consume() for pieces that together are the box's piece of each part; scales that belong to two pieces may come
/// with both. Throws what the codec's encode() throws; some pieces may have been consumed before.
void encode_to_host(gpu::Pipeline& pipeline, const DeviceCodec& codec, const Source& source, const Box& box,
                    const ConstDeviceMoments& moments, const Statistics& statistics,
                    const std::function<void(const PartPiece<std::span<const std::byte>>&)>& consume);

/// Decodes a box from pieces that provide() fills in: every part of the first boxes, then of the next. On return the
/// moments are there. Throws what the codec's decode() throws; some moments may have been written before.
void decode_to_device(gpu::Pipeline& pipeline, const DeviceCodec& codec, const Source& source, const Box& box,
                      const DecodeOptions& options, const DeviceMoments& out,
                      const std::function<void(const PartPiece<std::span<std::byte>>&)>& provide);

}  // namespace cairn::quant
