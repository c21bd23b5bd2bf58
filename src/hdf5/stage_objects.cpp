#include "hdf5/stage_objects.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {
namespace {

constexpr std::uint64_t kMaxAttributeBytes = 1ULL << 20;
constexpr std::uint64_t kPieceBytes = 4ULL << 20;

/// HDF5 has no strings of length 0; an empty string is stored as one NUL.
Handle text_type(std::size_t bytes, const Checker& check) {
  Handle type = check.handle(H5Tcopy(H5T_C_S1), H5Tclose, "making a text type for");
  check.done(H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1)), "making a text type for");
  check.done(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "making a text type for");
  check.done(H5Tset_cset(type.get(), H5T_CSET_UTF8), "making a text type for");
  return type;
}

Handle scalar_space(const Checker& check) { return check.handle(H5Screate(H5S_SCALAR), H5Sclose, "data space of"); }

void put(hid_t object, const char* name, hid_t type, hid_t space, const void* value, const Checker& check) {
  const Handle attribute =
      check.handle(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "adding attributes to");
  check.done(H5Awrite(attribute.get(), type, value), "adding attributes to");
}

[[noreturn]] void mistyped(const char* name, const char* expected, const Checker& check) {
  throw Error(check.kind(), fmt::format("'{}': attribute '{}' is not a {}: the file is damaged, or not Cairn's",
                                        os::shown(check.path()), name, expected));
}

/// The attribute, or an invalid handle if there is none.
Handle open_attribute(hid_t object, const char* name, const Checker& check) {
  const htri_t exists = H5Aexists(object, name);
  check.done(exists < 0 ? -1 : 0, "looking for attributes in");
  if (exists == 0) return {};
  return check.handle(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, "opening attributes of");
}

}  // namespace

void put_text(hid_t object, const char* name, const std::string& value, const Checker& check) {
  if (value.find('\0') != std::string::npos) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' cannot stand in '{}': HDF5 has no texts with NUL bytes",
                                               base::printable(value), os::shown(check.path())));
  }
  const Handle type = text_type(value.size(), check);
  put(object, name, type.get(), scalar_space(check).get(), value.c_str(), check);
}

void put_number(hid_t object, const char* name, std::uint64_t value, const Checker& check) {
  put(object, name, H5T_STD_U64LE, scalar_space(check).get(), &value, check);
}

void put_numbers(hid_t object, const char* name, std::span<const std::uint64_t> values, const Checker& check) {
  const hsize_t count = values.size();
  const Handle space = check.handle(H5Screate_simple(1, &count, nullptr), H5Sclose, "data space of");
  put(object, name, H5T_STD_U64LE, space.get(), values.data(), check);
}

std::optional<std::string> get_text(hid_t object, const char* name, const Checker& check) {
  const Handle attribute = open_attribute(object, name, check);
  if (!attribute.is_valid()) return std::nullopt;
  const Handle type = check.handle(H5Aget_type(attribute.get()), H5Tclose, "reading attributes of");
  const bool is_fixed = H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0;
  const std::uint64_t bytes = H5Tget_size(type.get());
  if (!is_fixed || bytes == 0 || bytes > kMaxAttributeBytes || H5Aget_storage_size(attribute.get()) != bytes) {
    mistyped(name, "text", check);
  }
  std::string value(bytes, '\0');
  check.done(H5Aread(attribute.get(), type.get(), value.data()), "reading attributes of");
  value.resize(std::min(value.find('\0'), value.size()));
  return value;
}

std::optional<std::vector<std::uint64_t>> get_numbers(hid_t object, const char* name, const Checker& check) {
  const Handle attribute = open_attribute(object, name, check);
  if (!attribute.is_valid()) return std::nullopt;
  const Handle type = check.handle(H5Aget_type(attribute.get()), H5Tclose, "reading attributes of");
  const std::uint64_t bytes = H5Aget_storage_size(attribute.get());
  const Handle space = check.handle(H5Aget_space(attribute.get()), H5Sclose, "reading attributes of");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tequal(type.get(), H5T_STD_U64LE) <= 0 || count < 0 || bytes > kMaxAttributeBytes ||
      bytes != static_cast<std::uint64_t>(count) * sizeof(std::uint64_t)) {
    mistyped(name, "list of 64-bit numbers", check);
  }
  std::vector<std::uint64_t> values(static_cast<std::size_t>(count));
  check.done(H5Aread(attribute.get(), H5T_NATIVE_UINT64, values.data()), "reading attributes of");
  return values;
}

std::optional<std::uint64_t> get_number(hid_t object, const char* name, const Checker& check) {
  const auto values = get_numbers(object, name, check);
  if (!values) return std::nullopt;
  if (values->size() != 1) mistyped(name, "single number", check);
  return values->front();
}

Handle put_text_dataset(hid_t group, const char* name, const std::string& value, hid_t creation, const Checker& check) {
  const Handle type = text_type(value.size(), check);
  const Handle space = scalar_space(check);
  Handle dataset = check.handle(H5Dcreate2(group, name, type.get(), space.get(), H5P_DEFAULT, creation, H5P_DEFAULT),
                                H5Dclose, "making datasets in");
  check.done(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, value.c_str()), "writing");
  put_number(dataset.get(), "crc32c", format::crc32c(base::as_bytes(value)), check);
  return dataset;
}

Handle make_bytes_dataset(hid_t group, const char* name, const BytesToCome& bytes, hid_t creation,
                          const Checker& check) {
  const hsize_t count = bytes.size_bytes;
  const Handle space = check.handle(H5Screate_simple(1, &count, nullptr), H5Sclose, "data space of");
  Handle dataset = check.handle(H5Dcreate2(group, name, H5T_STD_U8LE, space.get(), H5P_DEFAULT, creation, H5P_DEFAULT),
                                H5Dclose, "making datasets in");
  put_number(dataset.get(), "crc32c", bytes.crc32c, check);
  return dataset;
}

void give_bytes(hid_t dataset, const std::string& name, const base::PutBytes& put, const Checker& check) {
  const std::string shown = fmt::format("'{}': '{}'", os::shown(check.path()), base::printable(name));
  const Handle type = check.handle(H5Dget_type(dataset), H5Tclose, "reading datasets of");
  const Handle space = check.handle(H5Dget_space(dataset), H5Sclose, "reading datasets of");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  const bool is_text = H5Tget_class(type.get()) == H5T_STRING;
  const bool is_row = H5Tequal(type.get(), H5T_STD_U8LE) > 0 && H5Sget_simple_extent_ndims(space.get()) == 1;
  const bool is_plain = is_row || (is_text && H5Tis_variable_str(type.get()) == 0 && count == 1);
  const std::uint64_t element_bytes = H5Tget_size(type.get());
  const std::uint64_t stored_bytes = H5Dget_storage_size(dataset);
  const auto crc = get_number(dataset, "crc32c", check);
  if (!is_plain || !crc || count < 0 || stored_bytes > os::file_size(check.path()) || element_bytes == 0 ||
      stored_bytes / element_bytes != static_cast<std::uint64_t>(count)) {
    throw Error(check.kind(), shown + " holds no text or bytes of Cairn's: the file is damaged, or not Cairn's");
  }
  format::RunningCrc32c found;
  base::Bytes piece(is_text ? stored_bytes : std::min(stored_bytes, kPieceBytes));
  for (std::uint64_t at = 0; at < stored_bytes; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), stored_bytes - at));
    const hsize_t offset = at;
    const hsize_t length = piece.size();
    const Handle in_memory = check.handle(H5Screate_simple(1, &length, nullptr), H5Sclose, "reading datasets of");
    if (is_row) {
      check.done(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &offset, nullptr, &length, nullptr),
                 "reading datasets of");
    }
    check.done(H5Dread(dataset, type.get(), is_row ? in_memory.get() : H5S_ALL, is_row ? space.get() : H5S_ALL,
                       H5P_DEFAULT, piece.data()),
               "reading datasets of");
    // An empty string is stored as one NUL.
    if (is_text && piece.size() == 1 && piece[0] == std::byte{0}) break;
    found.add(piece);
    put(piece);
  }
  if (found.value() == *crc) return;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("{} {}: the file was damaged since", shown, format::mismatch_words(found.value(), *crc)));
}

base::Bytes get_bytes(hid_t dataset, const std::string& name, const Checker& check) {
  base::Bytes value;
  give_bytes(
      dataset, name, [&](std::span<const std::byte> piece) { value.insert(value.end(), piece.begin(), piece.end()); },
      check);
  return value;
}

}  // namespace cairn::hdf5
