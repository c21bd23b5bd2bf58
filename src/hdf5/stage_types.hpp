// Element types and shapes of tensors as HDF5's. Includes hdf5.h: for this folder only.
//
// Always little-endian, as safetensors is, so that the raw bytes of a dataset are the tensor's. bfloat16 and the 8-bit
// floats, which HDF5 does not know, are unsigned integers of their width; BOOL is the enumeration that h5py makes of
// bool, C64 the compound that it makes of complex64. Dtypes of 4 and 6 bits are one row of packed bytes.
#pragma once

#include <span>
#include <vector>

#include "cairn/dtype.hpp"
#include "format/stored_checkpoint.hpp"
#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

constexpr bool is_packed(DType dtype) { return bits_of(dtype) < 8; }

/// The type of a dataset of that dtype. `check` names the file.
Handle stage_type(DType dtype, const Checker& check);

/// Dimensions of the dataset: the tensor's, or its number of bytes when it is packed.
std::vector<hsize_t> stage_dimensions(const format::StoredTensor& tensor);

}  // namespace cairn::hdf5
