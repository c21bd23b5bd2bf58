// Attributes, and datasets other than tensors, in staging files. Includes hdf5.h: for this folder only.
//
// Strings are UTF-8 with a fixed length, so that an attribute's string lies in the object's header, under its checksum.
// A file that is read may be damaged, so type and size are checked before memory is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

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
/// The raw bytes of such a dataset; `name` is for messages. Throws the checker's error if the dataset has a different
/// type or claims more bytes than the file has, and Error(kIntegrity) if the checksum differs.
base::Bytes get_bytes(hid_t dataset, const std::string& name, const Checker& check);
/// As get_bytes(), in pieces; the checksum is compared after the last piece.
void give_bytes(hid_t dataset, const std::string& name, const base::PutBytes& put, const Checker& check);

}  // namespace cairn::hdf5
