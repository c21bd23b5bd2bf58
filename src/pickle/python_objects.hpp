// The meaning of objects in a pickle. The calls on this list are interpreted here, but never executed:
//
//   numpy    _reconstruct with its state, _frombuffer, scalar, dtype; ml_dtypes' types
//   Python   collections.OrderedDict; tuple, list, set, frozenset, dict with one argument; bytes, bytearray
//            _codecs.encode(text, 'latin1'): bytes in protocols 0 to 2
//   tensors  tuple((name, array)), and eval('data', {'data': array}) for one without a name
//
// All other objects stay as they are. A call on the list may still be invalid: a numpy array with an impossible state
// is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/dtype.hpp"
#include "pickle/pickle.hpp"

namespace cairn::pickle {

/// The value that an object stands for, if the pickle contains it: (a, b) for tuple((a, b)). Otherwise `value` itself.
PickleValue plain(PickleValue value);

/// Entries of a dict, or of an OrderedDict of any protocol; nothing for any other value. String keys are unique.
std::optional<std::vector<std::pair<PickleValue, PickleValue>>> dict_of(PickleValue value);

/// A byte string, as any protocol writes it; nothing for any other value.
std::optional<PickledBytes> bytes_of(PickleValue value);

/// A numpy array of numbers.
struct PickledArray {
  std::string type;            ///< numpy's name without byte order: "f4", "bfloat16"
  std::optional<DType> dtype;  ///< nothing for a type that DType does not have, such as "c16"
  std::uint64_t item_bytes = 0;
  bool is_big_endian = false;
  bool is_fortran_order = false;     ///< the first dimension varies fastest
  std::vector<std::uint64_t> shape;  ///< at most kMaxRank dimensions
  std::uint64_t data_bytes = 0;      ///< bytes of all elements
  /// The size was checked against data_bytes, except for kLatin1 bytes that were not read: give_bytes() checks these.
  PickledBytes data;
};

/// The array in a value; nothing if the value is not an array, or has objects, strings or records.
/// Throws Error(kFormat) for an array that contradicts itself.
std::optional<PickledArray> array_of(PickleValue value);

/// The reason why the elements cannot be read from the file unchanged, in row-major order: "are big-endian". Empty if
/// they can.
std::string obstacle_of(const PickledArray& array);

/// The value of a float, integer, bool, numpy scalar or array without dimensions, if it was read; nothing for any other
/// value. numpy's types: f4, f8, integers of up to 64 bits, bool.
std::optional<double> number_of(PickleValue value);
/// As number_of(), but only for integers and bools within the range of std::int64_t.
std::optional<std::int64_t> integer_of(PickleValue value);

/// Gives the decoded bytes in order, piece by piece; `source`: the pickle's source. Throws Error(kFormat), "<path>:
/// byte <offset>: ...", if a text for bytes is not UTF-8 of Latin-1 characters, or there are not `expected` bytes.
void give_bytes(const PickledBytes& bytes, const base::ByteSource& source, std::string_view path,
                std::uint64_t expected, const base::PutBytes& put);

/// The unsigned integer stored in an element's bytes (at most eight).
std::uint64_t loaded(std::span<const std::byte> bytes, bool is_big_endian);

}  // namespace cairn::pickle
