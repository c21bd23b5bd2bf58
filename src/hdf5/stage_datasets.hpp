// The datasets of tensors in a staging file: their element types and shapes, and the checks made when one is read.
// Includes hdf5.h: for this folder only.
//
// Always little-endian, like safetensors, so that the raw bytes of a dataset are the tensor's. bfloat16 and the 8-bit
// floats, which HDF5 does not have, are unsigned integers of their width; BOOL is h5py's enumeration for bool, and C64
// its compound for complex64. Dtypes of 4 and 6 bits are one row of packed bytes.
#pragma once

#include <string>
#include <vector>

#include "cairn/dtype.hpp"
#include "format/stored_checkpoint.hpp"
#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

constexpr bool is_packed(DType dtype) { return bits_of(dtype) < 8; }

/// HDF5's type for the dtype. `check` names the file.
Handle stage_type(DType dtype, const Checker& check);

/// Dimensions of the dataset: those of the tensor, or the number of bytes of a packed tensor.
std::vector<hsize_t> stage_dimensions(const format::StoredTensor& tensor);

/// Opens the file read-only, without locks, with a large sieve buffer for small pieces.
Handle open_stage(const Checker& check);

/// Opens the dataset at "group/link" or "group/group/link". Throws the checker's error if a link does not exist, and
/// Error(kFormat) unless all links are hard and the dataset's bytes lie contiguously in this file.
Handle open_plain_dataset(hid_t file, const std::string& path, const Checker& check);

/// Throws Error(kFormat) unless the dataset has the type, the shape and the number of bytes of the tensor.
void check_dataset(hid_t dataset, const format::StoredTensor& tensor, const Checker& check);

}  // namespace cairn::hdf5
