// PaddlePaddle's O1 and O2 on a device.
#pragma once

#include "quant/device_codec.hpp"

namespace cairn::quant {

[[nodiscard]] const DeviceCodec& paddle_o1_on_device();
[[nodiscard]] const DeviceCodec& paddle_o2_on_device();

}  // namespace cairn::quant
