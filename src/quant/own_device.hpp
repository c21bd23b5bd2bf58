// q8 and q4 on a device.
#pragma once

#include "quant/device_codec.hpp"

namespace cairn::quant {

[[nodiscard]] const DeviceCodec& own_q8_on_device();
[[nodiscard]] const DeviceCodec& own_q4_on_device();

}  // namespace cairn::quant
