// parse_header: checks the text, reads the JSON, and repeats the checks of the reference in their order (FORMAT.md,
// "Data files").
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "format/plain_header.hpp"
#include "format/safetensors.hpp"
#include "nlohmann/json.hpp"

namespace cairn::format {
namespace {

using Kind = SafetensorsErrorKind;

constexpr int kMaxDepth = 127;  // serde_json's limit in the reference: 128 levels are refused
constexpr const char* kMetadataName = "__metadata__";

// Turns the header's JSON, a stream of events, into tensors and metadata. Only the parser uses this.
//
// A state machine with one state per place in the grammar: it builds no tree, uses memory only for the result, and
// counts nesting, so that a header of brackets cannot exhaust the stack. The state determines the tokens that may
// follow, and errors name the expected token. Callbacks return true or throw.

class HeaderEvents {
 public:
  explicit HeaderEvents(std::string_view path) : path_(path) {}

  HeaderText text;

  // The interface called by nlohmann::json::sax_parse.

  bool null() {
    if (expect_ == Expect::kMetadata) {  // mlx writes this when there is no metadata
      expect_ = Expect::kTensorName;
      return true;
    }
    return other_scalar("null");
  }

  bool boolean(bool) { return other_scalar("a boolean"); }
  bool number_integer(std::int64_t) { return other_scalar("a negative number"); }

  bool number_unsigned(std::uint64_t value) {
    if (expect_ == Expect::kDimension) {
      if (tensor_.shape.size() == kMaxRank) {
        fail(Kind::kRankTooLarge, fmt::format("the shape has more than {} dimensions", kMaxRank));
      }
      tensor_.shape.push_back(value);
      return true;
    }
    if (expect_ == Expect::kOffset) {
      if (offsets_ == 2) fail(Kind::kInvalidHeaderDeserialization, "data_offsets has more than two numbers");
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
      return true;
    }
    return other_scalar("a number");
  }

  bool number_float(double, const std::string&) {
    return other_scalar("a number that is not an unsigned 64-bit integer");
  }

  bool string(std::string& value) {
    if (expect_ == Expect::kDtype) {
      const auto dtype = dtype_from_name(value);
      if (!dtype) {
        fail(Kind::kInvalidHeaderDeserialization, fmt::format("unknown dtype '{}'", base::printable(value, 40)));
      }
      tensor_.dtype = *dtype;
      expect_ = Expect::kField;
      return true;
    }
    if (expect_ == Expect::kMetadataValue) {
      if (!text.metadata.emplace(metadata_key_, std::move(value)).second) {
        fail(Kind::kDuplicateKey, fmt::format("the key '{}' appears twice", base::printable(metadata_key_)));
      }
      expect_ = Expect::kMetadataKey;
      return true;
    }
    return other_scalar("a string");
  }

  template <class Binary>
  bool binary(Binary&) {
    return other_scalar("a binary value");
  }

  bool start_object(std::size_t) {
    enter();
    switch (expect_) {
      case Expect::kHeader: expect_ = Expect::kTensorName; return true;
      case Expect::kInfo: expect_ = Expect::kField; return true;
      case Expect::kMetadata: expect_ = Expect::kMetadataKey; return true;
      case Expect::kUnknown: ++unknown_depth_; return true;
      default: unexpected("an object");
    }
  }

  bool key(std::string& value) {
    switch (expect_) {
      case Expect::kTensorName: begin_tensor(value); return true;
      case Expect::kField: begin_field(value); return true;
      case Expect::kMetadataKey:
        metadata_key_ = std::move(value);
        expect_ = Expect::kMetadataValue;
        return true;
      default: return true;  // inside a skipped value
    }
  }

  bool end_object() {
    --depth_;
    switch (expect_) {
      case Expect::kTensorName: expect_ = Expect::kNothing; break;
      case Expect::kField: finish_tensor(); break;
      case Expect::kMetadataKey: expect_ = Expect::kTensorName; break;
      default: --unknown_depth_; skipped_value();
    }
    return true;
  }

  bool start_array(std::size_t) {
    enter();
    switch (expect_) {
      case Expect::kShape: expect_ = Expect::kDimension; return true;
      case Expect::kOffsets: expect_ = Expect::kOffset; return true;
      case Expect::kUnknown: ++unknown_depth_; return true;
      default: unexpected("an array");
    }
  }

  bool end_array() {
    --depth_;
    if (expect_ == Expect::kOffset && offsets_ != 2) {
      fail(Kind::kInvalidHeaderDeserialization, fmt::format("data_offsets has {} numbers, not two", offsets_));
    }
    if (expect_ == Expect::kUnknown) {
      --unknown_depth_;
      skipped_value();
    } else {
      expect_ = Expect::kField;
    }
    return true;
  }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& last_token, const Exception&) {
    syntax_error(position, last_token);
  }

 private:
  enum class Expect {
    kHeader,      // the header object
    kTensorName,  // a key of the header, or its end
    kInfo,        // the object after a tensor's name
    kField,       // a key of that object, or its end
    kDtype,
    kShape,      // "[" of the shape
    kDimension,  // a number in the shape, or its end
    kOffsets,
    kOffset,
    kUnknown,   // the value of an unknown key, which is skipped
    kMetadata,  // the object after "__metadata__", or null
    kMetadataKey,
    kMetadataValue,
    kNothing,  // after the header
  };
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  struct Seen {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  bool other_scalar(const char* found) {
    if (expect_ != Expect::kUnknown) unexpected(found);
    skipped_value();
    return true;
  }

  void enter() {
    if (++depth_ > kMaxDepth) {
      fail(Kind::kInvalidHeaderDeserialization, fmt::format("JSON is nested more than {} levels deep", kMaxDepth));
    }
  }

  void skipped_value() {
    if (unknown_depth_ == 0) expect_ = Expect::kField;
  }

  void begin_tensor(std::string& name) {
    if (name == kMetadataName) {
      if (std::exchange(metadata_seen_, true)) {
        fail(Kind::kInvalidHeaderDeserialization, "the key '__metadata__' appears twice");
      }
      expect_ = Expect::kMetadata;
      return;
    }
    tensor_ = Tensor();
    tensor_.name = std::move(name);
    seen_ = Seen();
    offsets_ = 0;
    in_tensor_ = true;
    expect_ = Expect::kInfo;
  }

  void begin_field(const std::string& name) {
    if (name == "dtype") {
      mark(seen_.dtype, "dtype");
      expect_ = Expect::kDtype;
    } else if (name == "shape") {
      mark(seen_.shape, "shape");
      expect_ = Expect::kShape;
    } else if (name == "data_offsets") {
      mark(seen_.offsets, "data_offsets");
      expect_ = Expect::kOffsets;
    } else {
      expect_ = Expect::kUnknown;
    }
  }

  void mark(bool& seen, const char* field) {
    if (std::exchange(seen, true)) {
      fail(Kind::kInvalidHeaderDeserialization, fmt::format("the key '{}' appears twice", field));
    }
  }

  void finish_tensor() {
    const char* missing = !seen_.dtype ? "dtype" : !seen_.shape ? "shape" : !seen_.offsets ? "data_offsets" : nullptr;
    if (missing != nullptr) {
      fail(Kind::kInvalidHeaderDeserialization, fmt::format("'{}' is missing", missing));
    }
    text.add(tensor_.name, tensor_.dtype, tensor_.shape, {tensor_.begin, tensor_.end});
    in_tensor_ = false;
    expect_ = Expect::kTensorName;
  }

  [[nodiscard]] std::string place() const {
    switch (expect_) {
      case Expect::kHeader: return "the header must be a JSON object";
      case Expect::kInfo: return "its description must be an object with dtype, shape and data_offsets";
      case Expect::kDtype: return "dtype must be a string";
      case Expect::kShape: return "shape must be an array";
      case Expect::kDimension: return "shape must hold unsigned 64-bit integers";
      case Expect::kOffsets: return "data_offsets must be an array of two numbers";
      case Expect::kOffset: return "data_offsets must hold unsigned 64-bit integers";
      case Expect::kMetadata: return "__metadata__ must be an object";
      case Expect::kMetadataValue:
        return fmt::format("the value of '{}' must be a string", base::printable(metadata_key_));
      default: return "nothing more may follow";
    }
  }

  [[noreturn]] void unexpected(const char* found) const {
    fail(Kind::kInvalidHeaderDeserialization, fmt::format("{}, found {}", place(), found));
  }

  [[noreturn]] void fail(Kind kind, const std::string& what) const {
    std::string subject = "safetensors header";
    if (in_tensor_) {
      subject = fmt::format("tensor '{}'", base::printable(tensor_.name));
    } else if (metadata_seen_ && (expect_ == Expect::kMetadataKey || expect_ == Expect::kMetadataValue)) {
      subject = "__metadata__ of the safetensors header";
    }
    throw SafetensorsError(kind, fmt::format("{}: {}: {}", base::one_line(path_), subject, what));
  }

  [[noreturn]] void syntax_error(std::size_t position, const std::string& last_token) const {
    throw SafetensorsError(Kind::kInvalidHeaderDeserialization,
                           fmt::format("{}: safetensors header: not valid JSON at byte {} of the header, at '{}'",
                                       base::one_line(path_), position, base::printable(last_token, 40)));
  }

  std::string_view path_;
  Expect expect_ = Expect::kHeader;
  int depth_ = 0;
  int unknown_depth_ = 0;  // open brackets of the skipped value
  bool metadata_seen_ = false;
  bool in_tensor_ = false;
  Seen seen_;
  Tensor tensor_;
  int offsets_ = 0;
  std::string metadata_key_;
};

[[noreturn]] void fail(Kind kind, std::string_view path, const std::string& what) {
  throw SafetensorsError(kind, fmt::format("{}: {}", base::one_line(path), what));
}

[[noreturn]] void fail_tensor(Kind kind, std::string_view path, const TensorEntry& tensor, const std::string& what) {
  fail(kind, path, fmt::format("tensor '{}': {}", base::printable(tensor.name), what));
}

/// Finds invalid UTF-8, and faults that the JSON library hides: it skips a byte order mark, and ends the text at a NUL.
void check_text(std::string_view json, std::string_view path) {
  const std::size_t bad = base::find_invalid_utf8(json);
  if (bad != std::string_view::npos) {
    fail(Kind::kInvalidHeader, path, fmt::format("safetensors header: byte {} is not UTF-8", bad));
  }
  if (json.starts_with("\xEF\xBB\xBF")) {
    fail(Kind::kInvalidHeaderDeserialization, path, "safetensors header: begins with a byte order mark");
  }
  const std::size_t nul = json.find('\0');
  if (nul != std::string_view::npos) {
    fail(Kind::kInvalidHeaderDeserialization, path,
         fmt::format("safetensors header: NUL at byte {} of the header; padding must be spaces", nul));
  }
}

/// Sorts the names, since a file could contain names that make a hash table quadratic.
void check_unique(const std::vector<TensorEntry>& tensors, std::string_view path) {
  const auto is_before = [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; };
  const auto not_before = [&](const TensorEntry& a, const TensorEntry& b) { return !is_before(a, b); };
  if (std::ranges::adjacent_find(tensors, not_before) == tensors.end()) return;
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  const std::vector<std::uint32_t> order = base::order_of_texts(names);
  const auto twice = std::ranges::adjacent_find(order, [&](auto a, auto b) { return names[a] == names[b]; });
  if (twice != order.end()) fail_tensor(Kind::kDuplicateKey, path, tensors[*twice], "the name appears twice");
}

void check_tensor(const TensorEntry& tensor, std::uint64_t start, std::string_view path) {
  if (tensor.begin != start || tensor.end < tensor.begin) {
    fail_tensor(Kind::kInvalidOffset, path, tensor,
                fmt::format("data_offsets [{}, {}] do not continue at {}, where the tensor before it ends; tensors "
                            "must lie end to end without holes or overlaps",
                            tensor.begin, tensor.end, start));
  }
  const TensorSize size = try_tensor_bytes(tensor.dtype, tensor.shape);
  if (size.error) fail_tensor(*size.error, path, tensor, size.reason);
  if (tensor.end - tensor.begin != size.bytes) {
    fail_tensor(Kind::kTensorInvalidInfo, path, tensor,
                fmt::format("{} of shape {} is {} bytes, but data_offsets [{}, {}] span {}", name_of(tensor.dtype),
                            shape_text(tensor.shape), size.bytes, tensor.begin, tensor.end, tensor.end - tensor.begin));
  }
}

void check_data(const SafetensorsHeader& header, std::string_view path) {
  std::uint64_t start = 0;
  for (const TensorEntry& tensor : header.tensors) {
    check_tensor(tensor, start, path);
    start = tensor.end;
  }
  const std::uint64_t present = header.file_bytes - header.data_start;
  if (start != present) {
    fail(Kind::kMetadataIncompleteBuffer, path,
         fmt::format(
             "the header describes {} bytes of data and the file holds {}; the file is cut off or has extra bytes",
             start, present));
  }
}

/// The checks of both parsers, before and after `read` reads the text, and the sort into file order.
template <class Read>
SafetensorsHeader parse(std::string_view json, std::uint64_t file_bytes, std::string_view path, const Read& read) {
  if (json.size() > kMaxHeaderBytes) {
    fail(Kind::kHeaderTooLarge, path,
         fmt::format("safetensors header of {} bytes is above the limit of {}", json.size(), kMaxHeaderBytes));
  }
  SafetensorsHeader header;
  header.data_start = kPrefixBytes + json.size();
  header.file_bytes = file_bytes;
  if (header.data_start > file_bytes) {
    fail(Kind::kInvalidHeaderLength, path,
         fmt::format("the safetensors header ends at {}, beyond the end of the file ({} bytes)", header.data_start,
                     file_bytes));
  }
  check_text(json, path);
  read(header);
  check_unique(header.tensors, path);
  const auto in_file_order = [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  };
  if (!std::ranges::is_sorted(header.tensors, in_file_order)) {
    std::stable_sort(header.tensors.begin(), header.tensors.end(), in_file_order);
  }
  check_data(header, path);
  return header;
}

void read_strictly(std::string_view json, std::string_view path, SafetensorsHeader& header) {
  HeaderEvents events(path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  std::move(events.text).give_to(header);
}

}  // namespace

SafetensorsHeader parse_header(std::string_view json, std::uint64_t file_bytes, std::string_view path) {
  return parse(json, file_bytes, path, [&](SafetensorsHeader& header) {
    if (auto text = read_plain_header(json)) {
      std::move(*text).give_to(header);
    } else {
      read_strictly(json, path, header);
    }
  });
}

SafetensorsHeader parse_header_strictly(std::string_view json, std::uint64_t file_bytes, std::string_view path) {
  return parse(json, file_bytes, path, [&](SafetensorsHeader& header) { read_strictly(json, path, header); });
}

}  // namespace cairn::format
