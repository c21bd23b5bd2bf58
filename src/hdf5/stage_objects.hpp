// What the readers and the writer of staging files share: attributes, element types, datasets. Includes hdf5.h: for
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

// Attributes and small datasets of a staging file: texts, numbers, bytes. Includes hdf5.h: for this folder only.
//
// Texts are of fixed length and UTF-8, so that they lie in the object's header, under its checksum. What is read comes
// from a file that may be damaged: type and size are checked before memory is taken.

void put_text(hid_t object, const char* name, const std::string& value, const Checker& check);
void put_number(hid_t object, const char* name, std::uint64_t value, const Checker& check);
void put_numbers(hid_t object, const char* name, std::span<const std::uint64_t> values, const Checker& check);

/// Nothing when there is no such attribute; throws the checker's error when it has another type.
std::optional<std::string> get_text(hid_t object, const char* name, const Checker& check);
std::optional<std::uint64_t> get_number(hid_t object, const char* name, const Checker& check);
std::optional<std::vector<std::uint64_t>> get_numbers(hid_t object, const char* name, const Checker& check);

/// A scalar text, and a row of bytes that are to be written later, as datasets with the CRC-32C of their bytes in the
/// attribute `crc32c`. `creation` is a dataset creation list.
Handle put_text_dataset(hid_t group, const char* name, const std::string& value, hid_t creation, const Checker& check);
struct BytesToCome {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;
};
Handle make_bytes_dataset(hid_t group, const char* name, const BytesToCome& bytes, hid_t creation,
                          const Checker& check);
/// The raw bytes of such a dataset; `name` is for messages. Throws the checker's error when it claims more than the
/// file has, Error(kIntegrity) when the bytes are not those that were written.
base::Bytes get_bytes(hid_t dataset, const std::string& name, const Checker& check);
/// The same in pieces; the checksum is compared after the last one.
void give_bytes(hid_t dataset, const std::string& name, const base::PutBytes& put, const Checker& check);

// Element types and shapes of tensors as HDF5's. Includes hdf5.h: for this folder only.
//
// Always little-endian, as safetensors is, so that the raw bytes of a dataset are the tensor's. bfloat16 and the 8-bit
// floats, which HDF5 does not know, are unsigned integers of their width; BOOL is the enumeration that h5py makes of
// bool, C64 the compound that it makes of complex64. Dtypes of 4 and 6 bits are one row of packed bytes.

constexpr bool is_packed(DType dtype) { return bits_of(dtype) < 8; }

/// The type of a dataset of that dtype. `check` names the file.
Handle stage_type(DType dtype, const Checker& check);

/// Dimensions of the dataset: the tensor's, or its number of bytes when it is packed.
std::vector<hsize_t> stage_dimensions(const format::StoredTensor& tensor);

// Opening a staging file and the datasets in it, with the checks that both of its readers make. Includes hdf5.h: for
// this folder only.

/// Read-only, without locks, with a large sieve buffer for small pieces.
Handle open_stage(const Checker& check);

/// Opens the dataset at "group/link" or "group/group/link". Throws the checker's error unless all of them are hard
/// links, and Error(kFormat) unless the dataset's bytes lie contiguously in this very file.
Handle open_plain_dataset(hid_t file, const std::string& path, const Checker& check);

/// Throws the checker's error unless the dataset has the type and the shape of that tensor, and all of its bytes.
void check_dataset(hid_t dataset, const format::StoredTensor& tensor, const Checker& check);

}  // namespace cairn::hdf5
