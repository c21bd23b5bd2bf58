// Functions that launch a kernel on a stream. Jobs hold device pointers; the work is asynchronous.
//
// own_kernels.cu and tile_kernels.cu have the kernels; device_kernels_absent.cpp replaces both in a build without CUDA
// (in tests, an emulation runs the same jobs). All functions throw Error(kIo) if the device refuses the launch.
// Only sources of this layer may include this header.
#pragma once

#include "gpu/runtime.hpp"
#include "quant/own_lanes.hpp"
#include "quant/paddle_codec.hpp"
#include "quant/paddle_lanes.hpp"

namespace cairn::quant::own {

struct Format;

void launch(const Format& format, const EncodeJob& job, gpu::StreamHandle* stream);

}  // namespace cairn::quant::own

namespace cairn::quant::paddle {

void launch(const MeasureJob& job, gpu::StreamHandle* stream);
void launch(Stage stage, const EncodeJob& job, gpu::StreamHandle* stream);

}  // namespace cairn::quant::paddle
