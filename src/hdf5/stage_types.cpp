#include "hdf5/stage_types.hpp"

#include <array>
#include <cstdint>

#include "format/safetensors.hpp"

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

/// IEEE 754 binary16: sign 15, exponent 10 to 14, mantissa 0 to 9.
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

}  // namespace cairn::hdf5
