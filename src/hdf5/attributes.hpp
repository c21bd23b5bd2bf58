// Attributes and small datasets of a staging file: texts, numbers, bytes. Includes hdf5.h: for this folder only.
//
// Texts are of fixed length and UTF-8, so that they lie in the object's header, under its checksum. What is read comes
// from a file that may be damaged: type and size are checked before memory is taken.
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

/// Nothing when there is no such attribute; throws the checker's error when it has another type.
std::optional<std::string> get_text(hid_t object, const char* name, const Checker& check);
std::optional<std::uint64_t> get_number(hid_t object, const char* name, const Checker& check);
std::optional<std::vector<std::uint64_t>> get_numbers(hid_t object, const char* name, const Checker& check);

/// A scalar text, and a row of bytes that are to be written later, as datasets with the CRC-32C of their bytes in the attribute `crc32c`. `creation` is
/// a dataset creation list.
Handle put_text_dataset(hid_t group, const char* name, const std::string& value, hid_t creation, const Checker& check);
struct BytesToCome {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;
};
Handle make_bytes_dataset(hid_t group, const char* name, const BytesToCome& bytes, hid_t creation,
                          const Checker& check);
/// The raw bytes of such a dataset; `name` is for messages. Throws the checker's error when it claims more than the file
/// has, Error(kIntegrity) when the bytes are not those that were written.
base::Bytes get_bytes(hid_t dataset, const std::string& name, const Checker& check);
/// The same in pieces; the checksum is compared after the last one.
void give_bytes(hid_t dataset, const std::string& name, const base::PutBytes& put, const Checker& check);

}  // namespace cairn::hdf5
