// The parts of safetensors headers other than the parser: errors, lengths, sizes, and the encoder.
#include "format/safetensors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/text.hpp"

namespace cairn::format {

// Names of the safetensors error kinds, as the reference implementation spells them.

const char* name_of(SafetensorsErrorKind kind) {
  switch (kind) {
    case SafetensorsErrorKind::kHeaderTooSmall: return "HeaderTooSmall";
    case SafetensorsErrorKind::kHeaderTooLarge: return "HeaderTooLarge";
    case SafetensorsErrorKind::kInvalidHeaderLength: return "InvalidHeaderLength";
    case SafetensorsErrorKind::kInvalidHeader: return "InvalidHeader";
    case SafetensorsErrorKind::kInvalidHeaderDeserialization: return "InvalidHeaderDeserialization";
    case SafetensorsErrorKind::kInvalidOffset: return "InvalidOffset";
    case SafetensorsErrorKind::kValidationOverflow: return "ValidationOverflow";
    case SafetensorsErrorKind::kMisalignedSlice: return "MisalignedSlice";
    case SafetensorsErrorKind::kTensorInvalidInfo: return "TensorInvalidInfo";
    case SafetensorsErrorKind::kMetadataIncompleteBuffer: return "MetadataIncompleteBuffer";
    case SafetensorsErrorKind::kDuplicateKey: return "DuplicateKey";
    case SafetensorsErrorKind::kRankTooLarge: return "RankTooLarge";
    case SafetensorsErrorKind::kNotSafetensors: return "NotSafetensors";
  }
  return "Unknown";
}

// The first eight bytes of a safetensors file: the length of the header.
//
// Files of other formats begin with text or a magic number, so they nearly always claim an absurd length. The error
// names their type, because "header too large" would be misleading.

namespace {

struct Lookalike {
  std::string_view magic;
  const char* what;
};

constexpr std::array<Lookalike, 8> kLookalikes = {{
    {"version https://git-lfs", "a git-lfs pointer, not the file itself; fetch it with 'git lfs pull'"},
    {"PK\x03\x04", "a zip archive, perhaps a PyTorch .bin/.pt file; convert it to safetensors first"},
    {"GGUF", "a GGUF file, which is not read; take the safetensors files that it was made from"},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file; convert it to safetensors first, with the program that wrote it"},
    {"\x93NUMPY", "a NumPy file; convert it to safetensors first"},
    {"<!DOCTYPE", "an HTML page, perhaps a failed download"},
    {"<html", "an HTML page, perhaps a failed download"},
    {"{\"", "a JSON file"},
}};

/// Whether the text begins as a pickle of protocol 2 to 5 does: with the opcode of its version, then that of a frame, a
/// container, a number, a text or a class.
bool begins_as_pickle(std::string_view start) {
  constexpr std::string_view kOpcodes = "\x95\x8a\x8c}])(cKJMX";
  return start.size() >= 3 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5 &&
         kOpcodes.find(start[2]) != std::string_view::npos;
}

const char* recognise(std::string_view start) {
  if (begins_as_pickle(start)) {
    return "a pickle, perhaps a PyTorch .bin/.pt/.pth file; load it with torch, and save it as safetensors";
  }
  for (const Lookalike& other : kLookalikes) {
    const std::size_t shown = std::min(start.size(), other.magic.size());
    if (start.substr(0, shown) == other.magic.substr(0, shown)) return other.what;
  }
  return nullptr;
}

// encode_header: with an alignment of 8, byte for byte the output of the reference implementation.

using Kind = SafetensorsErrorKind;

void check_text(std::string_view text, const char* what) {
  if (!base::is_utf8(text)) {
    throw SafetensorsError(Kind::kInvalidHeader, fmt::format("{} '{}' is not UTF-8", what, base::printable(text)));
  }
}

void check_tensor(const Tensor& tensor) {
  check_text(tensor.name, "tensor name");
  if (tensor.name == "__metadata__") {
    throw SafetensorsError(Kind::kInvalidHeaderDeserialization,
                           "a tensor cannot be named '__metadata__' in a safetensors file; rename it");
  }
  if (tensor.shape.size() > kMaxRank) {
    throw SafetensorsError(Kind::kRankTooLarge,
                           fmt::format("tensor '{}' has {} dimensions; at most {} can be stored",
                                       base::printable(tensor.name), tensor.shape.size(), kMaxRank));
  }
}

/// Dtype descending, then name ascending by bytes.
std::vector<std::size_t> file_order(std::span<const Tensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](auto a, auto b) { return tensors[a].name == tensors[b].name; });
  if (twice != order.end()) {
    throw SafetensorsError(Kind::kDuplicateKey, fmt::format("tensor '{}' appears twice among the tensors of one file",
                                                            base::printable(tensors[*twice].name)));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tensors[a].dtype > tensors[b].dtype; });
  return order;
}

/// Escapes like serde_json: short forms where they exist, \u00xx below 0x20, everything else raw.
void append_escaped(std::string& out, char c) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  const std::size_t at = kEscaped.find(c);
  if (at != std::string_view::npos) {
    out += '\\';
    out += kLetters[at];
  } else {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  }
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t plain = 0;  // start of text without escapes
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out += text.substr(plain, at - plain);
    append_escaped(out, c);
    plain = at + 1;
  }
  out += text.substr(plain);
  out += '"';
}

void append_metadata(std::string& out, const std::map<std::string, std::string>& metadata) {
  out += "\"__metadata__\":{";
  const char* separator = "";
  for (const auto& [key, value] : metadata) {
    check_text(key, "metadata key");
    check_text(value, "metadata value");
    out += separator;
    append_string(out, key);
    out += ':';
    append_string(out, value);
    separator = ",";
  }
  out += '}';
}

void append_tensor(std::string& out, const Tensor& tensor, std::uint64_t begin, std::uint64_t end) {
  append_string(out, tensor.name);
  out += fmt::format(":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", name_of(tensor.dtype),
                     base::joined(tensor.shape, ","), begin, end);
}

void check_length(std::size_t json_bytes) {
  if (json_bytes > kMaxHeaderBytes) {
    throw SafetensorsError(Kind::kHeaderTooLarge, fmt::format("the safetensors header would be {} bytes or more, above "
                                                              "the limit of {}; spread the tensors over more files",
                                                              json_bytes, kMaxHeaderBytes));
  }
}

/// The prefix, the JSON, and spaces up to the alignment.
std::string framed(const std::string& json, std::uint64_t align_bytes) {
  check_length(json.size());
  const std::uint64_t total = base::round_up(kPrefixBytes + json.size(), align_bytes);
  const std::uint64_t length = total - kPrefixBytes;
  check_length(length);
  std::string out;
  out.reserve(total);
  for (std::size_t i = 0; i < kPrefixBytes; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  out += json;
  out.append(total - out.size(), ' ');
  return out;
}

}  // namespace

std::uint64_t header_length(std::span<const std::byte> prefix, std::uint64_t file_bytes, std::string_view path) {
  const std::string where = base::one_line(path);
  if (prefix.size() < kPrefixBytes || file_bytes < kPrefixBytes) {
    throw SafetensorsError(SafetensorsErrorKind::kHeaderTooSmall,
                           fmt::format("{}: {} bytes are too few for a safetensors file, which begins with 8 bytes of "
                                       "header length; the file is empty or cut off",
                                       where, std::min<std::uint64_t>(prefix.size(), file_bytes)));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kPrefixBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(prefix[i]);
  if (length <= kMaxHeaderBytes && length <= file_bytes - kPrefixBytes) return length;
  const std::string_view start(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  if (const char* what = recognise(start)) {
    throw SafetensorsError(SafetensorsErrorKind::kNotSafetensors,
                           fmt::format("{}: not a safetensors file but {}", where, what));
  }
  if (length > kMaxHeaderBytes) {
    throw SafetensorsError(
        SafetensorsErrorKind::kHeaderTooLarge,
        fmt::format(
            "{}: header length {} is above the limit of {} bytes; the file is damaged or is no safetensors file", where,
            length, kMaxHeaderBytes));
  }
  throw SafetensorsError(
      SafetensorsErrorKind::kInvalidHeaderLength,
      fmt::format("{}: the header of {} bytes ends beyond the end of the file ({} bytes); the file is cut off", where,
                  length, file_bytes));
}

// Sizes of tensors in checked 64-bit arithmetic, first in bits, since F4 and F6 elements are not whole bytes.

std::string shape_text(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kShown = 16;
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size() && i < kShown; ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return out + (shape.size() > kShown ? ", ...]" : "]");
}

TensorSize try_tensor_bytes(DType dtype, std::span<const std::uint64_t> shape) {
  const auto elements = base::try_product(shape);
  if (!elements) {
    return {0, SafetensorsErrorKind::kValidationOverflow,
            fmt::format("the number of elements of shape {} overflows 64 bits", shape_text(shape))};
  }
  const auto bits = base::try_mul(*elements, bits_of(dtype));
  if (!bits) {
    return {0, SafetensorsErrorKind::kValidationOverflow,
            fmt::format("the size in bits of {} elements of {} overflows 64 bits", *elements, name_of(dtype))};
  }
  if (*bits % 8 != 0) {
    return {0, SafetensorsErrorKind::kMisalignedSlice,
            fmt::format("{} elements of {} ({} bits each) are not a whole number of bytes", *elements, name_of(dtype),
                        bits_of(dtype))};
  }
  return {*bits / 8, std::nullopt, {}};
}

std::uint64_t tensor_bytes(DType dtype, std::span<const std::uint64_t> shape, std::string_view name) {
  const TensorSize size = try_tensor_bytes(dtype, shape);
  if (size.error) {
    throw SafetensorsError(*size.error, fmt::format("tensor '{}': {}", base::printable(name), size.reason));
  }
  return size.bytes;
}

std::uint64_t quoted_bytes(std::string_view text) {
  std::uint64_t bytes = text.size() + 2;
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t') {
      bytes += 1;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      bytes += 5;
    }
  }
  return bytes;
}

std::uint64_t entry_bytes(DType dtype, std::span<const std::uint64_t> shape, std::string_view name,
                          unsigned offset_digits) {
  constexpr std::string_view kFixed = R"(:{"dtype":"","shape":[],"data_offsets":[,]},)";
  std::uint64_t bytes = quoted_bytes(name) + kFixed.size() + name_of(dtype).size() + 2 * std::uint64_t{offset_digits};
  for (const std::uint64_t size : shape) bytes += base::digits_of(size) + 1;
  return shape.empty() ? bytes : bytes - 1;
}

EncodedHeader encode_header(std::span<const Tensor> tensors, const std::map<std::string, std::string>& metadata,
                            std::uint64_t align_bytes) {
  if (align_bytes < 8 || !std::has_single_bit(align_bytes)) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("alignment of the data section is {} bytes; it must be a power of two, at least 8", align_bytes));
  }
  for (const Tensor& tensor : tensors) check_tensor(tensor);
  EncodedHeader out;
  out.order = file_order(tensors);
  out.data_offset.resize(tensors.size());
  std::string json = "{";
  if (!metadata.empty()) append_metadata(json, metadata);
  for (const std::size_t i : out.order) {
    const Tensor& tensor = tensors[i];
    const auto end = base::try_add(out.data_bytes, tensor_bytes(tensor.dtype, tensor.shape, tensor.name));
    if (!end) {
      throw SafetensorsError(
          Kind::kValidationOverflow,
          fmt::format("the data of the file overflows 64 bits at tensor '{}'", base::printable(tensor.name)));
    }
    if (json.size() > 1) json += ',';
    append_tensor(json, tensor, out.data_bytes, *end);
    check_length(json.size());
    out.data_offset[i] = out.data_bytes;
    out.data_bytes = *end;
  }
  json += '}';
  out.bytes = framed(json, align_bytes);
  return out;
}

}  // namespace cairn::format
