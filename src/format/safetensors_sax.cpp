// The state machine of the header: each callback knows from the state what may come, and says what it expected instead.
#include "format/safetensors_sax.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/text.hpp"

namespace cairn::format {
namespace {

using Kind = SafetensorsErrorKind;

constexpr int kMaxDepth = 127;  // serde_json's limit in the reference: 128 levels are refused
constexpr const char* kMetadataName = "__metadata__";

}  // namespace

bool HeaderEvents::null() {
  if (expect_ == Expect::kMetadata) {  // mlx writes this when there is no metadata
    expect_ = Expect::kTensorName;
    return true;
  }
  return other_scalar("null");
}

bool HeaderEvents::boolean(bool) { return other_scalar("a boolean"); }
bool HeaderEvents::number_integer(std::int64_t) { return other_scalar("a negative number"); }
bool HeaderEvents::number_float(double, const std::string&) {
  return other_scalar("a number that is no unsigned 64-bit integer");
}

bool HeaderEvents::number_unsigned(std::uint64_t value) {
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

bool HeaderEvents::string(std::string& value) {
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
    if (!metadata.emplace(metadata_key_, std::move(value)).second) {
      fail(Kind::kDuplicateKey, fmt::format("the key '{}' appears twice", base::printable(metadata_key_)));
    }
    expect_ = Expect::kMetadataKey;
    return true;
  }
  return other_scalar("a string");
}

bool HeaderEvents::start_object(std::size_t) {
  enter();
  switch (expect_) {
    case Expect::kHeader: expect_ = Expect::kTensorName; return true;
    case Expect::kInfo: expect_ = Expect::kField; return true;
    case Expect::kMetadata: expect_ = Expect::kMetadataKey; return true;
    case Expect::kUnknown: ++unknown_depth_; return true;
    default: unexpected("an object");
  }
}

bool HeaderEvents::start_array(std::size_t) {
  enter();
  switch (expect_) {
    case Expect::kShape: expect_ = Expect::kDimension; return true;
    case Expect::kOffsets: expect_ = Expect::kOffset; return true;
    case Expect::kUnknown: ++unknown_depth_; return true;
    default: unexpected("an array");
  }
}

bool HeaderEvents::key(std::string& value) {
  switch (expect_) {
    case Expect::kTensorName: begin_tensor(value); return true;
    case Expect::kField: begin_field(value); return true;
    case Expect::kMetadataKey:
      metadata_key_ = std::move(value);
      expect_ = Expect::kMetadataValue;
      return true;
    default: return true;  // inside a value that is skipped
  }
}

bool HeaderEvents::end_object() {
  --depth_;
  switch (expect_) {
    case Expect::kTensorName: expect_ = Expect::kNothing; break;
    case Expect::kField: finish_tensor(); break;
    case Expect::kMetadataKey: expect_ = Expect::kTensorName; break;
    default: --unknown_depth_; skipped_value();
  }
  return true;
}

bool HeaderEvents::end_array() {
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

void HeaderEvents::enter() {
  if (++depth_ > kMaxDepth) {
    fail(Kind::kInvalidHeaderDeserialization, fmt::format("JSON is nested more than {} levels deep", kMaxDepth));
  }
}

bool HeaderEvents::other_scalar(const char* found) {
  if (expect_ != Expect::kUnknown) unexpected(found);
  skipped_value();
  return true;
}

void HeaderEvents::skipped_value() {
  if (unknown_depth_ == 0) expect_ = Expect::kField;
}

void HeaderEvents::begin_tensor(std::string& name) {
  if (name == kMetadataName) {
    if (std::exchange(metadata_seen_, true)) {
      fail(Kind::kInvalidHeaderDeserialization, "the key '__metadata__' appears twice");
    }
    expect_ = Expect::kMetadata;
    return;
  }
  tensor_ = TensorEntry();
  tensor_.name = std::move(name);
  seen_ = Seen();
  offsets_ = 0;
  in_tensor_ = true;
  expect_ = Expect::kInfo;
}

void HeaderEvents::begin_field(const std::string& name) {
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

void HeaderEvents::mark(bool& seen, const char* field) {
  if (std::exchange(seen, true)) {
    fail(Kind::kInvalidHeaderDeserialization, fmt::format("the key '{}' appears twice", field));
  }
}

void HeaderEvents::finish_tensor() {
  const char* missing = !seen_.dtype ? "dtype" : !seen_.shape ? "shape" : !seen_.offsets ? "data_offsets" : nullptr;
  if (missing != nullptr) {
    fail(Kind::kInvalidHeaderDeserialization, fmt::format("'{}' is missing", missing));
  }
  tensors.push_back(std::move(tensor_));
  in_tensor_ = false;
  expect_ = Expect::kTensorName;
}

std::string HeaderEvents::place() const {
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

void HeaderEvents::unexpected(const char* found) const {
  fail(Kind::kInvalidHeaderDeserialization, fmt::format("{}, found {}", place(), found));
}

void HeaderEvents::fail(Kind kind, const std::string& what) const {
  std::string subject = "safetensors header";
  if (in_tensor_) {
    subject = fmt::format("tensor '{}'", base::printable(tensor_.name));
  } else if (metadata_seen_ && (expect_ == Expect::kMetadataKey || expect_ == Expect::kMetadataValue)) {
    subject = "__metadata__ of the safetensors header";
  }
  throw SafetensorsError(kind, fmt::format("{}: {}: {}", base::one_line(path_), subject, what));
}

void HeaderEvents::syntax_error(std::size_t position, const std::string& last_token) const {
  throw SafetensorsError(Kind::kInvalidHeaderDeserialization,
                         fmt::format("{}: safetensors header: not valid JSON at byte {} of the header, at '{}'",
                                     base::one_line(path_), position, base::printable(last_token, 40)));
}

}  // namespace cairn::format
