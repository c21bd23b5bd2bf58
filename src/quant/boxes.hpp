// Shapes and boxes of moments, and the checks before they are encoded or decoded.
#pragma once

#include <cstdint>

#include "cairn/error.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

// Small helpers on shapes that all codecs need, in addition to shard/box_math.hpp.

/// Throws Error(kInternal) when the product does not fit 64 bits.
[[nodiscard]] std::uint64_t elements_of(const Shape& shape);

/// Bytes of a part's box.
[[nodiscard]] std::uint64_t bytes_of(const Part& part, const Box& box);

/// The position in the tensor of element `index` (row-major) of a box.
[[nodiscard]] Shape position_of(const Box& box, std::uint64_t index);

// Refusals before anything is encoded or decoded, by the tensor's name.
//
// Codecs themselves accept any values, like IEEE arithmetic: a NaN gives a NaN scale, and so a column or group of NaN.
// Writers and readers of checkpoints call these checks first.

/// Throws Error(kUsage) when `name` (a moment) is not F32.
void require_f32(const Codec& codec, std::string_view name, DType dtype);

/// Throws Error(kState) naming the first element that is NaN, infinite, or a negative v. Adam does not make such
/// values, and with shared scales their neighbours would also be lost.
void refuse_unusual_moments(const Codec& codec, const Source& source, const Box& box, const ConstMoments& moments);

/// The error of refuse_unusual_moments() for the values at a position.
[[nodiscard]] Error unusual_moment(const Codec& codec, const Source& source, const Shape& position, float m, float v);

/// Throws Error(kFormat) unless a stored part has the dtype and shape that the codec stores for `source`. `name`: of
/// the stored tensor.
void check_stored(const Codec& codec, std::string_view name, const Part& expected, DType dtype, const Shape& shape);

/// Throws Error(kFormat) naming the first scale that is NaN or infinite. `bytes`: any piece of a part of role kScales
/// and dtype F32; other parts are ignored.
void check_scales(const Codec& codec, std::string_view name, const Part& part, std::span<const std::byte> bytes);

}  // namespace cairn::quant
