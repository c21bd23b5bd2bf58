// The header's JSON as a stream of events, turned into tensors and metadata. Only the parser includes this.
//
// A state machine with one state per place in the grammar: no tree is built, memory is what the result needs, and
// nesting is a counter, so that a header of brackets cannot exhaust the stack. Callbacks return true or throw
// SafetensorsError.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors.hpp"

namespace cairn::format {

class HeaderEvents {
 public:
  explicit HeaderEvents(std::string_view path) : path_(path) {}

  std::vector<TensorEntry> tensors;  ///< as they stand in the header, duplicates included
  std::map<std::string, std::string> metadata;

  // The interface that nlohmann::json::sax_parse calls.
  bool null();
  bool boolean(bool value);
  bool number_integer(std::int64_t value);
  bool number_unsigned(std::uint64_t value);
  bool number_float(double value, const std::string& text);
  bool string(std::string& value);
  template <class Binary>
  bool binary(Binary&) {
    return other_scalar("a binary value");
  }
  bool start_object(std::size_t);
  bool key(std::string& value);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  template <class Exception>
  bool parse_error(std::size_t position, const std::string& last_token, const Exception&) {
    syntax_error(position, last_token);
  }

 private:
  enum class Expect {
    kHeader,      // the object that is the header
    kTensorName,  // a key of it, or its end
    kInfo,        // the object after a tensor's name
    kField,       // a key in it, or its end
    kDtype,
    kShape,      // "[" of the shape
    kDimension,  // a number in it, or its end
    kOffsets,
    kOffset,
    kUnknown,   // the value of a key that Cairn does not know, skipped whole
    kMetadata,  // the object after "__metadata__", or null
    kMetadataKey,
    kMetadataValue,
    kNothing,  // after the header
  };
  struct Seen {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  bool other_scalar(const char* found);
  void enter();
  void skipped_value();
  void begin_tensor(std::string& name);
  void begin_field(const std::string& name);
  void mark(bool& seen, const char* field);
  void finish_tensor();
  [[nodiscard]] std::string place() const;
  [[noreturn]] void unexpected(const char* found) const;
  [[noreturn]] void fail(SafetensorsErrorKind kind, const std::string& what) const;
  [[noreturn]] void syntax_error(std::size_t position, const std::string& last_token) const;

  std::string_view path_;
  Expect expect_ = Expect::kHeader;
  int depth_ = 0;
  int unknown_depth_ = 0;  // open brackets of the value that is being skipped
  bool metadata_seen_ = false;
  bool in_tensor_ = false;
  Seen seen_;
  TensorEntry tensor_;
  int offsets_ = 0;
  std::string metadata_key_;
};

}  // namespace cairn::format
