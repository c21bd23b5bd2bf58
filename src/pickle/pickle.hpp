// Python pickles as values: nothing in them is executed, imported or called.
//
// A pickle is a program for a small stack machine. The reader runs all of it except the calls: when a pickle calls a
// class or function, the value is an object with the called name and the arguments (python_objects.hpp interprets
// some of these objects). Long byte strings and text strings are not read: only their place in the file is kept, from
// which the data of a tensor can be read.
//
// Pickles come from strangers. A number in a pickle is checked before it determines the size of an allocation; memory
// and nesting depth have limits. Values may be shared and may contain themselves, so a walk over all values needs a
// limit, or id(). Every fault is an Error(kFormat) with a one-line message, "<path>: byte <offset>: ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"

namespace cairn::pickle {

/// A source that reads from `bytes`, which must outlive the source.
base::ByteSource source_of(std::span<const std::byte> bytes);

struct PickleOptions {
  std::uint64_t begin = 0;                                ///< offset of the pickle in its source
  bool may_go_on = false;                                 ///< bytes may follow the pickle; otherwise they are an error
  std::uint64_t inline_bytes = 4096;                      ///< byte and text strings up to this size are read
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;  ///< for all values together, roughly
  std::uint32_t depth = 1000;  ///< greatest depth of nested values; Python's default recursion limit
};

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,      // signed, 64 bits
  kLongInteger,  // longer
  kFloat,
  kText,
  kBytes,  // bytes, bytearray, and str of Python 2
  kList,
  kTuple,
  kDict,
  kSet,         // and frozenset
  kGlobal,      // the name of a class or function
  kObject,      // a call, and the values that were put into its result
  kPersistent,  // the id of an object outside of the pickle
};

/// "an integer", "a list".
const char* name_of(PickleKind kind);

/// A byte string in the source of its pickle.
struct PickledBytes {
  enum class Form {
    kPlain,   ///< unchanged
    kLatin1,  ///< UTF-8 of text with each byte as a code point, as in protocols 0 to 2
    kMemory,  ///< escaped, or not in the source: `memory` has the bytes
  };
  Form form = Form::kPlain;
  std::uint64_t offset = 0;           ///< in the source
  std::uint64_t size_bytes = 0;       ///< size in the source; for kMemory, the size of `memory`
  std::optional<base::Bytes> memory;  ///< the bytes, if they are few; always set for kMemory
};

struct PickleStore;

/// A value of a Pickle; the Pickle must outlive it. Cheap to copy. An accessor for a different kind of value throws
/// Error(kFormat), which names the place, the expected kind and the actual kind.
class PickleValue {
 public:
  PickleValue(const PickleStore* store, std::uint32_t index) : store_(store), index_(index) {}

  [[nodiscard]] PickleKind kind() const;
  [[nodiscard]] bool is(PickleKind wanted) const { return kind() == wanted; }
  /// Identifies the value, which a pickle may use many times.
  [[nodiscard]] std::uint32_t id() const { return index_; }
  /// "<path>: byte <offset>": the place where the pickle makes the value.
  [[nodiscard]] std::string where() const;
  /// Throws Error(kFormat): "<where>: <what>".
  [[noreturn]] void fail(const std::string& what) const;

  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] std::uint64_t unsigned_integer() const;  ///< up to 2^64 - 1
  [[nodiscard]] std::string long_integer() const;        ///< any integer in hexadecimal: "-0x1f"
  [[nodiscard]] double real() const;                     ///< value of a float, or of an integer of up to 64 bits

  /// Whether this is a text string that was read, or an ASCII str of Python 2 that was read.
  [[nodiscard]] bool is_text() const;
  [[nodiscard]] std::string_view text() const;
  /// The bytes of a byte string, or of a text string in UTF-8.
  [[nodiscard]] PickledBytes bytes() const;

  /// Elements of a list, tuple or set; or values appended to an object.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] PickleValue at(std::size_t i) const;
  /// Entries of a dict, in the order in which their keys were first set; or entries set in an object. Keys that are
  /// kInteger, or texts that were read, are unique: as in Python, the last value of a key counts (Pickle::warnings()).
  [[nodiscard]] std::size_t entries() const;
  [[nodiscard]] std::pair<PickleValue, PickleValue> entry(std::size_t i) const;
  /// The value of the entry with that text string as its key; nothing if there is none.
  [[nodiscard]] std::optional<PickleValue> find(std::string_view key) const;

  /// "module.name" of a global; for an object, the name of its class or of the called function, or "?". Modules
  /// `__builtin__`, `copy_reg` and `numpy._core.*` are renamed to `builtins`, `copyreg` and `numpy.core.*`.
  [[nodiscard]] std::string_view name() const;

  // An object: callable(*arguments, **keywords), then given `state`.
  [[nodiscard]] PickleValue callable() const;   ///< a global, an object or a persistent value
  [[nodiscard]] PickleValue arguments() const;  ///< a tuple
  [[nodiscard]] std::optional<PickleValue> keywords() const;
  [[nodiscard]] std::optional<PickleValue> state() const;

  /// The id of a persistent value.
  [[nodiscard]] PickleValue persistent_id() const;

  /// All direct parts of a value of any kind, for walks.
  [[nodiscard]] std::size_t children() const;
  [[nodiscard]] PickleValue child(std::size_t i) const;

 private:
  void expect(PickleKind wanted) const;

  const PickleStore* store_;
  std::uint32_t index_;
};

class Pickle {
 public:
  explicit Pickle(std::unique_ptr<const PickleStore> store);
  ~Pickle();
  Pickle(Pickle&&) noexcept;
  Pickle& operator=(Pickle&&) noexcept;

  [[nodiscard]] PickleValue root() const;
  [[nodiscard]] std::uint64_t end() const;  ///< offset of the end of the pickle in its source
  [[nodiscard]] bool has_cycles() const;    ///< a value contains itself
  /// A line for each of the first 10 times that a key was set again.
  [[nodiscard]] const std::vector<std::string>& warnings() const;

 private:
  std::unique_ptr<const PickleStore> store_;
};

/// Reads one pickle of protocol 0 to 5. `path` is for messages. Throws Error(kFormat), and errors of `source`.
Pickle read_pickle(const base::ByteSource& source, std::string_view path, const PickleOptions& options = {});

}  // namespace cairn::pickle
