// JSON output: the envelope of every document. README.md has the keys of each command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

inline constexpr int kJsonVersion = 1;

/// {"cairn_json": 1, "command": <command>}: keys keep the order in which they are added.
base::Json json_document(std::string_view command);

/// Prints the document, indented by two. Bytes that are not UTF-8 are replaced, so that the text always parses.
void print_json(Output& output, const base::Json& document);

/// Prints the values of a list piece by piece, with the text of print_json(). A checkpoint may have 100,000 tensors;
/// making a base::Json for each would take longer than everything else.
class JsonText {
 public:
  /// Begins inside `depth` other values. `output` must outlive the object.
  JsonText(Output& output, std::size_t depth) : output_(output), depth_(depth) {}

  void begin(char bracket);  ///< '{' or '['; in an object after key()
  void end(char bracket);    ///< '}' or ']'
  void key(std::string_view name);
  void value(std::string_view text);
  void value(std::uint64_t number);
  void value(std::span<const std::uint64_t> numbers);
  void null();
  template <class Value>
  void member(std::string_view name, const Value& of_name) {
    key(name);
    value(of_name);
  }
  /// Prints what is left. Requires: everything was ended.
  void finish();

 private:
  void begin_item();
  void new_line();
  void put(std::string_view text);

  Output& output_;
  std::size_t depth_;
  bool is_first_ = true;  ///< the next item is the first of its object or array
  bool has_key_ = true;   ///< the next value stands where it is: after a key, or as the outermost
  std::string text_;
};

/// A list in a document.
struct JsonList {
  std::string_view key;
  std::function<void(JsonText& text)> put;  ///< puts the values
};

/// Prints a document with the keys of `before`, the list, and the keys of `after`; both must be non-empty objects.
void print_json(Output& output, const base::Json& before, const JsonList& list, const base::Json& after);

/// Messages in the words of the command (option_words.hpp).
base::Json messages_json(std::span<const std::string> messages);

/// A number, or a string for the values that JSON cannot represent: "infinity", "-infinity", "nan".
base::Json json_number(double value);

}  // namespace cairn::cli
