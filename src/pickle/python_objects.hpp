// What the objects of a pickle stand for: the calls that this list allows, worked out here and never made.
//
//   numpy    _reconstruct with its state, _frombuffer, scalar, dtype; ml_dtypes' types
//   Python   collections.OrderedDict, and tuple, list, set, frozenset, dict, bytes, bytearray of one argument
//            _codecs.encode(text, 'latin1'): bytes in protocols 0 to 2
//   Paddle   tuple((name, array)) for a tensor, eval('data', {'data': array}) for a tensor without a name
//
// Every other object stays what it is, and opaque_names() tells its name. A name on the list does not make a call good:
// a numpy array whose state is not one is an error, since whoever asked needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/dtype.hpp"
#include "pickle/pickle.hpp"

namespace cairn::pickle {

/// The value that an object stands for where it is another value of the pickle: tuple((a, b)) is (a, b). Else itself.
PickleValue plain(PickleValue value);

/// Entries of a dict, or of an OrderedDict however it was pickled; nothing of anything else. No two have equal texts as
/// keys.
std::optional<std::vector<std::pair<PickleValue, PickleValue>>> dict_of(PickleValue value);

/// Bytes, whatever protocol wrote them; nothing of anything else.
std::optional<PickledBytes> bytes_of(PickleValue value);

/// A numpy array of numbers.
struct PickledArray {
  std::string type;            ///< numpy's name of it without byte order: "f4", "bfloat16"
  std::optional<DType> dtype;  ///< nothing: it has no counterpart, as "c16"
  std::uint64_t item_bytes = 0;
  bool is_big_endian = false;
  bool is_fortran_order = false;     ///< the first dimension is the one that varies fastest
  std::vector<std::uint64_t> shape;  ///< at most kMaxRank dimensions
  std::uint64_t data_bytes = 0;      ///< all elements
  /// Checked to be data_bytes, but for Form::kLatin1 that was not read, of which give_bytes() says it.
  PickledBytes data;
};

/// Nothing when the value is no array, or one of objects, texts or records. Throws Error(kFormat) when it is one that
/// contradicts itself.
std::optional<PickledArray> array_of(PickleValue value);

/// Why the elements cannot be read from the file in row-major order as they lie there: "are big-endian". Empty when they can.
std::string obstacle_of(const PickledArray& array);

/// A float, an integer, a bool, a numpy scalar or an array of no dimensions, as far as it was read; nothing of anything
/// else. numpy's are little-endian floats or integers of up to 64 bits.
std::optional<double> number_of(PickleValue value);
/// The same for integers and bools.
std::optional<std::int64_t> integer_of(PickleValue value);

/// Gives the bytes of a byte string in order, piece by piece, decoded; `source` is what its pickle was read from.
/// Throws Error(kFormat), "<path>: byte <offset>: ...", when they are not Latin-1, or not `expected` in number.
void give_bytes(const PickledBytes& bytes, const base::ByteSource& source, std::string_view path,
                std::uint64_t expected, const base::PutBytes& put);

/// Qualified names of the objects and globals in a pickle that are not on the list above, sorted, each once.
std::vector<std::string> opaque_names(const Pickle& pickle);

}  // namespace cairn::pickle
