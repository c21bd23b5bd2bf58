// Shapes and boxes of moments, and the checks before moments are encoded or decoded.
#pragma once

#include <cstdint>

#include "cairn/error.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

// Small helpers on shapes that all codecs need, in addition to shard/box_math.hpp.

/// Number of elements. Throws Error(kInternal) if the number does not fit in 64 bits.
[[nodiscard]] std::uint64_t elements_of(const Shape& shape);

/// Bytes of a part's box.
[[nodiscard]] std::uint64_t bytes_of(const Part& part, const Box& box);

/// The position, in the tensor, of a box's element `index` (row-major).
[[nodiscard]] Shape position_of(const Box& box, std::uint64_t index);

// Checks before anything is encoded or decoded; the errors name the tensor.
//
// Codecs of other systems accept any values, like IEEE arithmetic: a NaN gives a NaN scale, and so a column or group of
// NaN. Writers and readers of checkpoints call these checks first. q8 and q4 check the values that they encode.

/// Throws Error(kUsage) when `name` (a moment) is not F32.
void require_f32(const Codec& codec, std::string_view name, DType dtype);

/// Throws Error(kState) naming the first element that is NaN, infinite, or a negative v. Adam does not produce these
/// values, and because scales are shared, their neighbours would also be lost.
void refuse_unusual_moments(const Codec& codec, const Source& source, const Box& box, const ConstMoments& moments);

/// The error of refuse_unusual_moments() for the values at a position.
[[nodiscard]] Error unusual_moment(const Codec& codec, const Source& source, const Shape& position, float m, float v);

/// Throws Error(kFormat) unless a stored part has the dtype and shape of `expected`. `name`: the stored tensor's name.
void check_stored(const Codec& codec, std::string_view name, const Part& expected, DType dtype, const Shape& shape);

/// Throws Error(kFormat), naming the tensor, if a scale is NaN or infinite. `bytes`: any piece of a part of role
/// kScales and dtype F32; other parts are ignored.
void check_scales(const Codec& codec, std::string_view name, const Part& part, std::span<const std::byte> bytes);

}  // namespace cairn::quant
