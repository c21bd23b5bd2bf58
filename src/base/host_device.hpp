// CAIRN_HOST_DEVICE marks a function that nvcc compiles for the processor and the GPU; CAIRN_DEVICE marks one for the
// GPU only; other compilers see plain functions. CAIRN_UNROLL unrolls a loop over GPU registers.
//
// The macros let each formula be written once. Device code is compiled without fused multiply-adds, and with correctly
// rounded division and roots (src/quant/CMakeLists.txt), so that its results are bit for bit those of the processor.
#pragma once

#ifdef __CUDACC__
#define CAIRN_HOST_DEVICE __host__ __device__
#define CAIRN_DEVICE __device__
#define CAIRN_DEVICE_CALL __device__ __noinline__  // a rare path, which must not need registers of the common path
#define CAIRN_UNROLL _Pragma("unroll")
#else
#define CAIRN_HOST_DEVICE
#define CAIRN_DEVICE
#define CAIRN_DEVICE_CALL
#define CAIRN_UNROLL
#endif
