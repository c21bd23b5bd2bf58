// Python pickles as values to look at: nothing in them is executed, imported or called.
//
// A pickle is a program for a small stack machine. The reader runs all of it but the calls: where a pickle names a
// class or function, and calls it, the value is an object that says which name was called with which arguments
// (python_objects.hpp knows what some of them stand for). Long byte strings and texts are not read: their place in the
// file is kept, so that the data of a tensor can be read from there.
//
// Pickles come from strangers. Nothing takes memory in proportion to a number that a pickle claims before that number
// is checked; memory, and the depth of values in values, have limits. Values may be shared and may contain themselves:
// who walks over all of them needs a limit of its own, or goes by id(). Every fault is Error(kFormat) of one line,
// "<path>: byte <offset>: ...".
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

/// Of bytes that the caller keeps.
base::ByteSource source_of(std::span<const std::byte> bytes);

struct PickleOptions {
  std::uint64_t begin = 0;                                ///< offset of the pickle in its source
  bool may_go_on = false;                                 ///< other bytes may follow it; else they are an error
  std::uint64_t inline_bytes = 4096;                      ///< byte strings and texts up to that size are read
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;  ///< of all values together, about
  std::uint32_t depth = 1000;                             ///< of values in values; Python's own pickler ends there
};

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,      // fits 64 bits with its sign
  kLongInteger,  // does not
  kFloat,
  kText,
  kBytes,  // bytes, bytearray, and str of Python 2
  kList,
  kTuple,
  kDict,
  kSet,         // and frozenset
  kGlobal,      // the name of a class or function
  kObject,      // something called, and what was then put into the result
  kPersistent,  // something that is not in the pickle, by an id
};

/// "an integer", "a list".
const char* name_of(PickleKind kind);

/// A byte string in the source of its pickle.
struct PickledBytes {
  enum class Form {
    kPlain,   ///< as it is
    kLatin1,  ///< as UTF-8 of a text that has the byte's number as code point: what protocols 0 to 2 do
    kMemory,  ///< in an escaped form, or not at all: `memory` has the bytes
  };
  Form form = Form::kPlain;
  std::uint64_t offset = 0;           ///< in the source
  std::uint64_t size_bytes = 0;       ///< in the source; kMemory: of `memory`
  std::optional<base::Bytes> memory;  ///< the bytes themselves when they are few, and always for kMemory
};

struct PickleStore;

/// A value of a Pickle, which must outlive it. Cheap to copy. An accessor asked of a value of another kind throws
/// Error(kFormat) that names the place and both kinds: what a file should have and has not.
class PickleValue {
 public:
  PickleValue(const PickleStore* store, std::uint32_t index) : store_(store), index_(index) {}

  [[nodiscard]] PickleKind kind() const;
  [[nodiscard]] bool is(PickleKind wanted) const { return kind() == wanted; }
  /// The same for the same value, of which a pickle may have many uses.
  [[nodiscard]] std::uint32_t id() const { return index_; }
  /// "<path>: byte <offset>": where the pickle makes the value.
  [[nodiscard]] std::string where() const;
  /// Throws Error(kFormat): "<where>: <what>".
  [[noreturn]] void fail(const std::string& what) const;

  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] std::uint64_t unsigned_integer() const;  ///< up to 2^64 - 1
  [[nodiscard]] std::string long_integer() const;        ///< of any integer: "-0x1f"
  [[nodiscard]] double real() const;                     ///< of a float or an integer

  /// True for a text that was read, and for a str of Python 2 that was read and is ASCII.
  [[nodiscard]] bool is_text() const;
  [[nodiscard]] std::string_view text() const;
  /// Of bytes. Of a text: its UTF-8 in the file.
  [[nodiscard]] PickledBytes bytes() const;

  /// Elements of a list, tuple, set; or what was appended to an object.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] PickleValue at(std::size_t i) const;
  /// Entries of a dict, in the order of their first keys; or what was set in an object. No two have equal texts or integers
  /// as keys: as in Python, the last one counts, and Pickle::warnings() has it.
  [[nodiscard]] std::size_t entries() const;
  [[nodiscard]] std::pair<PickleValue, PickleValue> entry(std::size_t i) const;
  /// The entry with that text as key.
  [[nodiscard]] std::optional<PickleValue> find(std::string_view key) const;

  /// "module.name" of a global. Of an object: of the class that it is one of, or of what was called; `__builtin__`,
  /// `copy_reg` and `numpy._core` under the names `builtins`, `copyreg` and `numpy.core`.
  [[nodiscard]] std::string_view name() const;

  // An object: callable(*arguments, **keywords), then `state` given to it.
  [[nodiscard]] PickleValue callable() const;   ///< a global, an object or a persistent value
  [[nodiscard]] PickleValue arguments() const;  ///< a tuple
  [[nodiscard]] std::optional<PickleValue> keywords() const;
  [[nodiscard]] std::optional<PickleValue> state() const;

  /// Of a persistent value.
  [[nodiscard]] PickleValue persistent_id() const;

  /// All values that it leads to directly, of every kind: for walks.
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
  [[nodiscard]] std::uint64_t end() const;  ///< offset behind the pickle in its source
  [[nodiscard]] bool has_cycles() const;    ///< some value contains itself
  /// What a reader may want to know, a line each: keys that were set twice.
  [[nodiscard]] const std::vector<std::string>& warnings() const;

 private:
  std::unique_ptr<const PickleStore> store_;
};

/// Reads one pickle of protocol 0 to 5. `path` is for messages. Throws Error(kFormat), and what `source` throws.
Pickle read_pickle(const base::ByteSource& source, std::string_view path, const PickleOptions& options = {});

}  // namespace cairn::pickle
