// PaddlePaddle's two codecs for Adam moments, to the bit: its stage O1 (8 bits) and O2 (4 bits).
//
// Stored are m and r = 1/(sqrt(v) + 1e-8). Formulas, keys and the differences to Paddle: README.md.
#pragma once

#include "quant/codec.hpp"

namespace cairn::quant {

/// "paddle-o1": 8 bits, one scale for m and two for r per column (axis 1), one set for a 1-d tensor.
[[nodiscard]] const Codec& paddle_o1();

/// "paddle-o2": both 4-bit codes in one byte, scales for each 32 rows of a column.
[[nodiscard]] const Codec& paddle_o2();

}  // namespace cairn::quant
