#include "hdf5/stage_datasets.hpp"

#include <fmt/core.h>

#include <array>

#include "base/text.hpp"
#include "format/safetensors.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {
namespace {

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::kI8: return H5T_STD_I8LE;
    case DType::kI16: return H5T_STD_I16LE;
    case DType::kI32: return H5T_STD_I32LE;
    case DType::kI64: return H5T_STD_I64LE;
    case DType::kF32: return H5T_IEEE_F32LE;
    case DType::kF64: return H5T_IEEE_F64LE;
    default: break;
  }
  switch (bits_of(dtype)) {
    case 16: return H5T_STD_U16LE;
    case 32: return H5T_STD_U32LE;
    case 64: return H5T_STD_U64LE;
    default: return H5T_STD_U8LE;
  }
}

/// IEEE 754 binary16: the sign is bit 15, the exponent bits 10 to 14, the mantissa bits 0 to 9.
Handle half_type(const Checker& check) {
  Handle type = check.handle(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "making the type F16 for");
  check.done(H5Tset_fields(type.get(), 15, 10, 5, 0, 10), "making the type F16 for");
  check.done(H5Tset_size(type.get(), 2), "making the type F16 for");
  check.done(H5Tset_ebias(type.get(), 15), "making the type F16 for");
  return type;
}

Handle bool_type(const Checker& check) {
  Handle type = check.handle(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "making the type BOOL for");
  const std::array<std::int8_t, 2> values = {0, 1};
  check.done(H5Tenum_insert(type.get(), "FALSE", &values[0]), "making the type BOOL for");
  check.done(H5Tenum_insert(type.get(), "TRUE", &values[1]), "making the type BOOL for");
  return type;
}

Handle complex_type(const Checker& check) {
  Handle type = check.handle(H5Tcreate(H5T_COMPOUND, 8), H5Tclose, "making the type C64 for");
  check.done(H5Tinsert(type.get(), "r", 0, H5T_IEEE_F32LE), "making the type C64 for");
  check.done(H5Tinsert(type.get(), "i", 4, H5T_IEEE_F32LE), "making the type C64 for");
  return type;
}

constexpr std::size_t kSieveBytes = 1 << 20;

[[noreturn]] void refuse(const Checker& check, const std::string& name, const std::string& what) {
  throw Error(ErrorKind::kFormat,
              fmt::format("'{}': dataset '{}' {}", os::shown(check.path()), base::printable(name), what));
}

}  // namespace

Handle stage_type(DType dtype, const Checker& check) {
  if (dtype == DType::kF16) return half_type(check);
  if (dtype == DType::kBool) return bool_type(check);
  if (dtype == DType::kC64) return complex_type(check);
  return check.handle(H5Tcopy(native_type(dtype)), H5Tclose, "making a type for");
}

std::vector<hsize_t> stage_dimensions(const format::StoredTensor& tensor) {
  if (!is_packed(tensor.dtype)) return {tensor.shape.begin(), tensor.shape.end()};
  return {format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name)};
}

Handle open_stage(const Checker& check) {
  const Handle access = check.handle(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access list of");
  check.done(H5Pset_file_locking(access.get(), false, true), "switching off locks of");
  check.done(H5Pset_sieve_buf_size(access.get(), kSieveBytes), "file access list of");
  return check.handle(H5Fopen(check.path().c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "opening");
}

Handle open_plain_dataset(hid_t file, const std::string& path, const Checker& check) {
  // Opens level by level, so that external links are noticed before they are followed.
  for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
    const std::string link = path.substr(0, end);
    H5L_info_t info;
    check.done(H5Lget_info(file, link.c_str(), &info, H5P_DEFAULT), "looking for datasets in");
    if (info.type != H5L_TYPE_HARD) refuse(check, link, "is a link to somewhere else, which is not followed");
    if (end == std::string::npos) break;
  }
  Handle dataset = check.handle(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "opening datasets of");
  const Handle creation = check.handle(H5Dget_create_plist(dataset.get()), H5Pclose, "reading datasets of");
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  if (layout == H5D_CHUNKED || layout == H5D_COMPACT) {
    refuse(check, path, "is not contiguous; 'h5repack -l CONTI' and '-f NONE' make it so");
  }
  if (layout != H5D_CONTIGUOUS || H5Pget_external_count(creation.get()) != 0) {
    refuse(check, path, "has its bytes in other files, which are not opened");
  }
  return dataset;
}

void check_dataset(hid_t dataset, const format::StoredTensor& tensor, const Checker& check) {
  const Handle type = check.handle(H5Dget_type(dataset), H5Tclose, "reading datasets of");
  const Handle expected = stage_type(tensor.dtype, check);
  if (H5Tequal(type.get(), expected.get()) <= 0) {
    refuse(check, tensor.name, fmt::format("has not the type of {}", name_of(tensor.dtype)));
  }
  const Handle space = check.handle(H5Dget_space(dataset), H5Sclose, "reading datasets of");
  const std::vector<hsize_t> dimensions = stage_dimensions(tensor);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> found(rank < 0 ? 0 : static_cast<std::size_t>(rank));
  if (rank > 0) check.done(H5Sget_simple_extent_dims(space.get(), found.data(), nullptr), "reading datasets of");
  const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
  if ((kind != H5S_SIMPLE && kind != H5S_SCALAR) || found != dimensions) {
    refuse(check, tensor.name,
           fmt::format("has dimensions [{}], expected [{}]", base::joined(found), base::joined(dimensions)));
  }
  const std::uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
  const hsize_t stored = H5Dget_storage_size(dataset);
  if (stored != bytes) refuse(check, tensor.name, fmt::format("has {} bytes on disk, expected {}", stored, bytes));
}

}  // namespace cairn::hdf5
