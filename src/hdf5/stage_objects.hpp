// Attributes, element types and datasets of staging files, for their readers and their writer. Includes hdf5.h: for
// this folder only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/dtype.hpp"
#include "format/stored_checkpoint.hpp"
#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

// Attributes and small datasets: strings, numbers, bytes.
//
// Strings are UTF-8 with a fixed length, so that they lie in the object's header, under its checksum. A file that is
// read may be damaged, so type and size are checked before memory is allocated.

void put_text(hid_t object, const char* name, const std::string& value, const Checker& check);
void put_number(hid_t object, const char* name, std::uint64_t value, const Checker& check);
void put_numbers(hid_t object, const char* name, std::span<const std::uint64_t> values, const Checker& check);

/// The attribute; nullopt if there is none. Throws the checker's error if it has a different type.
std::optional<std::string> get_text(hid_t object, const char* name, const Checker& check);
std::optional<std::uint64_t> get_number(hid_t object, const char* name, const Checker& check);
std::optional<std::vector<std::uint64_t>> get_numbers(hid_t object, const char* name, const Checker& check);

/// These functions make datasets with the CRC-32C of their bytes in the attribute `crc32c`: a scalar string, and a row
/// of bytes that is written later. `creation` is a dataset creation list.
Handle put_text_dataset(hid_t group, const char* name, const std::string& value, hid_t creation, const Checker& check);
struct BytesToCome {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;
};
Handle make_bytes_dataset(hid_t group, const char* name, const BytesToCome& bytes, hid_t creation,
                          const Checker& check);
/// The raw bytes of such a dataset; `name` is for messages. Throws the checker's error if the dataset claims more bytes
/// than the file has, Error(kIntegrity) if the checksum differs.
base::Bytes get_bytes(hid_t dataset, const std::string& name, const Checker& check);
/// As get_bytes(), in pieces; the checksum is compared after the last piece.
void give_bytes(hid_t dataset, const std::string& name, const base::PutBytes& put, const Checker& check);

// Element types and shapes of tensors in HDF5.
//
// Always little-endian, like safetensors, so that the raw bytes of a dataset are the tensor's. bfloat16 and the 8-bit
// floats, which HDF5 does not have, are unsigned integers of their width; BOOL is h5py's enumeration for bool, and C64
// its compound for complex64. Dtypes of 4 and 6 bits are one row of packed bytes.

constexpr bool is_packed(DType dtype) { return bits_of(dtype) < 8; }

/// HDF5's type for the dtype. `check` names the file.
Handle stage_type(DType dtype, const Checker& check);

/// Dimensions of the dataset: those of the tensor, or the number of bytes of a packed tensor.
std::vector<hsize_t> stage_dimensions(const format::StoredTensor& tensor);

// Opening a staging file and its datasets, with the checks that both readers make.

/// Opens the file read-only, without locks, with a large sieve buffer for small pieces.
Handle open_stage(const Checker& check);

/// Opens the dataset at "group/link" or "group/group/link". Throws the checker's error if a link does not exist,
/// Error(kFormat) unless all are hard links and the dataset's bytes lie contiguously in this file.
Handle open_plain_dataset(hid_t file, const std::string& path, const Checker& check);

/// Throws Error(kFormat) unless the dataset has the type, the shape and the number of bytes of the tensor.
void check_dataset(hid_t dataset, const format::StoredTensor& tensor, const Checker& check);

}  // namespace cairn::hdf5
