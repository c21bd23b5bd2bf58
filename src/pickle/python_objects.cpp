#include "pickle/python_objects.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <string_view>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"

namespace cairn::pickle {
namespace {

// No program writes longer chains of calls that plain() follows; a longer chain may be a cycle.
constexpr int kMostSteps = 8;

constexpr std::string_view kArrayMaker = "numpy.core.multiarray._reconstruct";
constexpr std::string_view kBufferMaker = "numpy.core.numeric._frombuffer";
constexpr std::string_view kScalarMaker = "numpy.core.multiarray.scalar";
constexpr std::string_view kOrderedDict = "collections.OrderedDict";

struct NumberType {
  std::string_view name;  ///< numpy's type string without byte order; for ml_dtypes the name of the class
  std::uint64_t bytes;
  std::optional<DType> dtype;
};

constexpr std::array<NumberType, 21> kNumberTypes = {{{"b1", 1, DType::kBool},
                                                      {"i1", 1, DType::kI8},
                                                      {"u1", 1, DType::kU8},
                                                      {"i2", 2, DType::kI16},
                                                      {"u2", 2, DType::kU16},
                                                      {"i4", 4, DType::kI32},
                                                      {"u4", 4, DType::kU32},
                                                      {"i8", 8, DType::kI64},
                                                      {"u8", 8, DType::kU64},
                                                      {"f2", 2, DType::kF16},
                                                      {"f4", 4, DType::kF32},
                                                      {"f8", 8, DType::kF64},
                                                      {"c8", 8, DType::kC64},
                                                      {"c16", 16, std::nullopt},
                                                      {"bfloat16", 2, DType::kBF16},
                                                      {"float8_e4m3fn", 1, DType::kF8E4M3},
                                                      {"float8_e5m2", 1, DType::kF8E5M2},
                                                      {"float8_e8m0fnu", 1, DType::kF8E8M0},
                                                      {"float8_e4m3fnuz", 1, DType::kF8E4M3Fnuz},
                                                      {"float8_e5m2fnuz", 1, DType::kF8E5M2Fnuz},
                                                      {"f16", 16, std::nullopt}}};

constexpr std::string_view kSmallFloats = "ml_dtypes.";

const NumberType* number_type(std::string_view name) {
  const auto* found = std::ranges::find(kNumberTypes, name, &NumberType::name);
  return found == kNumberTypes.end() ? nullptr : found;
}

/// The type of the ml_dtypes class with that qualified name, or null.
const NumberType* small_float(std::string_view name) {
  if (!name.starts_with(kSmallFloats)) return nullptr;
  const NumberType* type = number_type(name.substr(kSmallFloats.size()));
  return type != nullptr && type->name.size() > 3 ? type : nullptr;
}

bool is_call_of(PickleValue value, std::string_view name) {
  return value.is(PickleKind::kObject) && value.callable().is(PickleKind::kGlobal) && value.callable().name() == name;
}

bool is_sequence(PickleValue value) {
  return value.is(PickleKind::kTuple) || value.is(PickleKind::kList) || value.is(PickleKind::kSet);
}

/// Whether the object is a call without keywords, and nothing was put into its result.
bool is_bare(PickleValue object) {
  return object.size() == 0 && object.entries() == 0 && !object.state() && !object.keywords();
}

/// One step of plain(); nothing if no step is possible.
std::optional<PickleValue> stands_for(PickleValue value) {
  if (!value.is(PickleKind::kObject) || !value.callable().is(PickleKind::kGlobal) || !is_bare(value)) {
    return std::nullopt;
  }
  const std::string_view name = value.callable().name();
  const PickleValue arguments = value.arguments();
  if (name == "builtins.tuple" || name == "builtins.list" || name == "builtins.set" || name == "builtins.frozenset") {
    if (arguments.size() == 1 && is_sequence(arguments.at(0))) return arguments.at(0);
  }
  if (name == "builtins.dict" && arguments.size() == 1 && arguments.at(0).is(PickleKind::kDict)) return arguments.at(0);
  if (name == "builtins.eval" && arguments.size() == 2) {
    // A tensor without a name. No other expression is interpreted.
    const bool is_data = arguments.at(0).is_text() && arguments.at(0).text() == "data";
    if (is_data && arguments.at(1).is(PickleKind::kDict) && arguments.at(1).entries() == 1) {
      return arguments.at(1).find("data");
    }
  }
  return std::nullopt;
}

bool is_latin1_name(std::string_view name) { return name == "latin1" || name == "latin-1"; }

/// Decodes UTF-8, piece by piece, in which each code point stands for one byte.
class Latin1Decoder {
 public:
  /// False for invalid UTF-8, or a code point above 0xff.
  bool decode(std::span<const std::byte> piece, base::Bytes& out) {
    for (const std::byte byte : piece) {
      const auto value = static_cast<unsigned>(byte);
      if (first_ != 0) {
        if ((value & 0xc0) != 0x80) return false;
        out.push_back(static_cast<std::byte>((first_ & 3) << 6 | (value & 0x3f)));
        first_ = 0;
      } else if (value < 0x80) {
        out.push_back(byte);
      } else if (value == 0xc2 || value == 0xc3) {
        first_ = value;
      } else {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool is_between_characters() const { return first_ == 0; }

 private:
  unsigned first_ = 0;  ///< first of two bytes, until the second one arrives
};

/// The characters of a text string as bytes.
PickledBytes latin1_of(PickleValue text) {
  PickledBytes out = text.bytes();
  out.form = out.form == PickledBytes::Form::kMemory ? out.form : PickledBytes::Form::kLatin1;
  if (!out.memory) return out;
  base::Bytes decoded;
  Latin1Decoder decoder;
  const bool is_good = decoder.decode(*out.memory, decoded) && decoder.is_between_characters();
  if (!is_good) text.fail("a text stands for bytes and has characters beyond Latin-1");
  if (out.form == PickledBytes::Form::kMemory) out.size_bytes = decoded.size();
  out.memory = std::move(decoded);
  return out;
}

struct ElementType {
  const NumberType* number = nullptr;
  bool is_big_endian = false;
};

/// From numpy.dtype('f4', False, True) with state (3, '<', None, None, None, -1, -1, 0). Nothing for unlisted types.
std::optional<ElementType> element_type(PickleValue value) {
  if (!is_call_of(value, "numpy.dtype"))
    value.fail("expected a numpy dtype, found " + std::string(name_of(value.kind())));
  if (value.arguments().size() == 0) value.fail("a numpy dtype without a type");
  const PickleValue what = value.arguments().at(0);
  ElementType out;
  if (what.is_text()) {
    std::string_view name = what.text();
    if (name.starts_with('<') || name.starts_with('>') || name.starts_with('|') || name.starts_with('=')) {
      out.is_big_endian = name.front() == '>';
      name.remove_prefix(1);
    }
    out.number = number_type(name);
    if (out.number != nullptr && name.size() > 3) out.number = nullptr;  // numpy itself has no "bfloat16"
  } else if (what.is(PickleKind::kGlobal)) {
    out.number = small_float(what.name());
  }
  if (out.number == nullptr) return std::nullopt;
  const auto state = value.state();
  if (!state) return out;
  if (!state->is(PickleKind::kTuple) || state->size() < 2 || !state->at(1).is_text()) {
    value.fail("the state of a numpy dtype is not one");
  }
  const std::string_view order = state->at(1).text();
  if (order != "<" && order != ">" && order != "|" && order != "=") {
    value.fail("a numpy dtype has byte order '" + base::printable(order, 20) + "'");
  }
  out.is_big_endian = order == ">";
  return out;
}

std::vector<std::uint64_t> shape_of(PickleValue value) {
  const PickleValue sizes = plain(value);
  std::vector<std::uint64_t> out;
  if (sizes.is(PickleKind::kInteger)) {
    out.push_back(sizes.unsigned_integer());
    return out;
  }
  if (!sizes.is(PickleKind::kTuple)) value.fail("the shape of an array is not a tuple");
  if (sizes.size() > format::kMaxRank) value.fail("an array of " + base::counted(sizes.size(), "dimension"));
  for (std::size_t i = 0; i < sizes.size(); ++i) out.push_back(sizes.at(i).unsigned_integer());
  return out;
}

bool is_fortran(PickleValue value) {
  if (value.is(PickleKind::kBool)) return value.boolean();
  return value.integer() != 0;
}

struct ArrayParts {
  PickleValue shape;
  PickleValue dtype;
  PickleValue data;
  bool is_fortran_order;
};

/// The parts of an array in either of numpy's two forms; nothing for any other object.
std::optional<ArrayParts> array_parts(PickleValue value) {
  if (is_call_of(value, kArrayMaker)) {
    const auto state = value.state();
    if (!state || !state->is(PickleKind::kTuple) || state->size() != 5) {
      value.fail("a numpy array's state is not (version, shape, dtype, order, data)");
    }
    return ArrayParts{state->at(1), state->at(2), state->at(4), is_fortran(state->at(3))};
  }
  if (is_call_of(value, kBufferMaker)) {
    const PickleValue arguments = value.arguments();
    if (arguments.size() != 4) value.fail("a numpy array's arguments are not (data, dtype, shape, order)");
    const std::string_view order = arguments.at(3).text();
    if (order != "C" && order != "F") value.fail("a numpy array has order '" + base::printable(order, 20) + "'");
    return ArrayParts{arguments.at(2), arguments.at(1), arguments.at(0), order == "F"};
  }
  return std::nullopt;
}

/// One element of a numpy type, in memory.
struct Element {
  std::string type;
  std::uint64_t bits = 0;
  std::uint64_t bytes = 0;
};

std::optional<Element> element_of(PickleValue value) {
  if (is_call_of(value, kScalarMaker)) {
    const PickleValue arguments = value.arguments();
    if (arguments.size() != 2) value.fail("a numpy scalar's arguments are not (dtype, data)");
    const auto type = element_type(arguments.at(0));
    if (!type || type->number->bytes > 8) return std::nullopt;
    const auto data = bytes_of(arguments.at(1));
    if (!data || !data->memory || data->memory->size() != type->number->bytes) {
      value.fail("the data of a numpy scalar is not " + base::counted(type->number->bytes, "byte"));
    }
    return Element{std::string(type->number->name), loaded(*data->memory, type->is_big_endian), type->number->bytes};
  }
  const auto array = array_of(value);
  if (!array || !array->shape.empty() || array->item_bytes > 8 || !array->data.memory) return std::nullopt;
  return Element{array->type, loaded(*array->data.memory, array->is_big_endian), array->item_bytes};
}

std::optional<std::int64_t> integer_of_element(const Element& element) {
  if (element.type == "b1") return element.bits != 0 ? 1 : 0;
  if (element.type.starts_with('u')) {
    if (element.bits > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(element.bits);
  }
  if (element.type.size() != 2 || element.type[0] != 'i') return std::nullopt;
  const unsigned unused = 64 - 8 * static_cast<unsigned>(element.bytes);
  return static_cast<std::int64_t>(element.bits << unused) >> unused;
}

std::optional<double> real_of_element(const Element& element) {
  if (element.type == "f8") return std::bit_cast<double>(element.bits);
  if (element.type == "f4") return std::bit_cast<float>(static_cast<std::uint32_t>(element.bits));
  if (element.type == "u8") return static_cast<double>(element.bits);
  if (const auto integer = integer_of_element(element)) return static_cast<double>(*integer);
  return std::nullopt;
}

}  // namespace

std::uint64_t loaded(std::span<const std::byte> bytes, bool is_big_endian) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t at = is_big_endian ? i : bytes.size() - 1 - i;
    out = out << 8 | static_cast<std::uint64_t>(bytes[at]);
  }
  return out;
}

PickleValue plain(PickleValue value) {
  PickleValue out = value;
  for (int step = 0; step < kMostSteps; ++step) {
    const auto next = stands_for(out);
    if (!next) return out;
    out = *next;
  }
  return value;
}

std::optional<std::vector<std::pair<PickleValue, PickleValue>>> dict_of(PickleValue value) {
  const PickleValue from = plain(value);
  std::vector<std::pair<PickleValue, PickleValue>> out;
  const auto put = [&](PickleValue key, PickleValue entry) { out.emplace_back(key, entry); };
  const bool is_ordered = is_call_of(from, kOrderedDict);
  if (!from.is(PickleKind::kDict) && !is_ordered) return std::nullopt;
  if (is_ordered && from.arguments().size() > 0) {
    // Python 2 passes the entries as a list of pairs, instead of setting them.
    const PickleValue pairs = plain(from.arguments().at(0));
    if (from.arguments().size() != 1 || !is_sequence(pairs) || from.entries() > 0) return std::nullopt;
    std::set<std::string_view> keys;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const PickleValue pair = plain(pairs.at(i));
      if (!is_sequence(pair) || pair.size() != 2) from.fail("an OrderedDict's entry is not a key and a value");
      const PickleValue key = pair.at(0);
      if (key.is_text() && !keys.insert(key.text()).second) key.fail("a key of an OrderedDict is given twice");
      put(key, pair.at(1));
    }
    return out;
  }
  for (std::size_t i = 0; i < from.entries(); ++i) {
    const auto entry = from.entry(i);
    put(entry.first, entry.second);
  }
  return out;
}

std::optional<PickledBytes> bytes_of(PickleValue value) {
  PickleValue from = value;
  for (int step = 0; step < 2; ++step) {
    if (from.is(PickleKind::kBytes)) return from.bytes();
    const bool is_call = from.is(PickleKind::kObject) && from.callable().is(PickleKind::kGlobal) && is_bare(from);
    if (!is_call) return std::nullopt;
    const std::string_view name = from.callable().name();
    const PickleValue arguments = from.arguments();
    const bool is_bytes = name == "builtins.bytes" || name == "builtins.bytearray";
    if (is_bytes && arguments.size() == 0) {
      PickledBytes none;
      none.form = PickledBytes::Form::kMemory;
      none.memory.emplace();
      return none;
    }
    if (is_bytes && arguments.size() == 1) {
      from = arguments.at(0);  // bytearray(bytes), or bytearray(_codecs.encode(text, 'latin1'))
      continue;
    }
    const bool encodes = (is_bytes || name == "_codecs.encode") && arguments.size() == 2 &&
                         arguments.at(0).is(PickleKind::kText) && arguments.at(1).is_text() &&
                         is_latin1_name(arguments.at(1).text());
    if (!encodes) return std::nullopt;
    return latin1_of(arguments.at(0));
  }
  return std::nullopt;
}

std::optional<PickledArray> array_of(PickleValue value) {
  const PickleValue from = plain(value);
  const auto parts = array_parts(from);
  if (!parts) return std::nullopt;
  const auto type = element_type(parts->dtype);
  if (!type) return std::nullopt;
  PickledArray out;
  out.type = type->number->name;
  out.dtype = type->number->dtype;
  out.item_bytes = type->number->bytes;
  out.is_big_endian = type->is_big_endian && out.item_bytes > 1;
  out.shape = shape_of(parts->shape);
  out.is_fortran_order = parts->is_fortran_order && out.shape.size() > 1;
  const auto elements = base::try_product(out.shape);
  const auto bytes = elements ? base::try_mul(*elements, out.item_bytes) : std::nullopt;
  if (!bytes) from.fail("an array of shape " + format::shape_text(out.shape) + " has more than 2^64 bytes");
  out.data_bytes = *bytes;
  const auto data = bytes_of(parts->data);
  if (!data) parts->data.fail("the data of an array is " + std::string(name_of(parts->data.kind())) + ", not bytes");
  out.data = *data;
  const bool is_counted = out.data.form != PickledBytes::Form::kLatin1 || out.data.memory;
  const std::uint64_t found = out.data.memory ? out.data.memory->size() : out.data.size_bytes;
  if (is_counted && found != out.data_bytes) {
    from.fail("an array " + out.type + format::shape_text(out.shape) + " has " + base::counted(out.data_bytes, "byte") +
              ", found " + std::to_string(found));
  }
  return out;
}

std::string obstacle_of(const PickledArray& array) {
  if (!array.dtype) return "are of numpy's type " + array.type;
  if (array.data_bytes == 0) return {};
  if (array.is_big_endian) return "are big-endian";
  if (array.is_fortran_order) return "are in column-major order";
  if (array.data.form != PickledBytes::Form::kPlain) return "are written as text: the pickle is of protocol 2 or older";
  return {};
}

std::optional<std::int64_t> integer_of(PickleValue value) {
  const PickleValue from = plain(value);
  if (from.is(PickleKind::kInteger)) return from.integer();
  if (from.is(PickleKind::kBool)) return from.boolean() ? 1 : 0;
  const auto element = element_of(from);
  return element ? integer_of_element(*element) : std::nullopt;
}

std::optional<double> number_of(PickleValue value) {
  const PickleValue from = plain(value);
  if (from.is(PickleKind::kInteger) || from.is(PickleKind::kFloat)) return from.real();
  if (from.is(PickleKind::kBool)) return from.boolean() ? 1 : 0;
  const auto element = element_of(from);
  return element ? real_of_element(*element) : std::nullopt;
}

void give_bytes(const PickledBytes& bytes, const base::ByteSource& source, std::string_view path,
                std::uint64_t expected, const base::PutBytes& put) {
  constexpr std::uint64_t kPieceBytes = 1 << 20;
  const auto fail = [&](const std::string& what) {
    base::fail_format(path, "byte " + std::to_string(bytes.offset) + ": " + what);
  };
  std::uint64_t given = 0;
  const auto give = [&](std::span<const std::byte> piece) {
    given += piece.size();
    if (given > expected) fail("more than the " + base::counted(expected, "byte") + " expected");
    put(piece);
  };
  if (bytes.memory) {
    give(*bytes.memory);
  } else {
    Latin1Decoder decoder;
    base::Bytes piece;
    base::Bytes decoded;
    for (std::uint64_t at = 0; at < bytes.size_bytes; at += piece.size()) {
      piece.resize(std::min(kPieceBytes, bytes.size_bytes - at));
      source.read(piece, bytes.offset + at);
      if (bytes.form == PickledBytes::Form::kPlain) {
        give(piece);
        continue;
      }
      decoded.clear();
      if (!decoder.decode(piece, decoded)) fail("a text stands for bytes and has characters beyond Latin-1");
      give(decoded);
    }
    if (!decoder.is_between_characters()) fail("a text that stands for bytes ends within a character");
  }
  if (given != expected) fail("expected " + base::counted(expected, "byte") + ", found " + std::to_string(given));
}

}  // namespace cairn::pickle
