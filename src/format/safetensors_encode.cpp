// encode_header: byte for byte what the reference implementation writes when the alignment is 8.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/safetensors.hpp"

namespace cairn::format {
namespace {

using Kind = SafetensorsErrorKind;

void check_text(std::string_view text, const char* what) {
  if (!base::is_utf8(text)) {
    throw SafetensorsError(Kind::kInvalidHeader, fmt::format("{} '{}' is not UTF-8", what, base::printable(text)));
  }
}

void check_tensor(const TensorToStore& tensor) {
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
std::vector<std::size_t> file_order(std::span<const TensorToStore> tensors) {
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

/// As serde_json escapes: short forms where there are, \u00xx below 0x20, everything else raw.
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
  std::size_t plain = 0;  // start of what needs no escape
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

void append_tensor(std::string& out, const TensorToStore& tensor, std::uint64_t begin, std::uint64_t end) {
  append_string(out, tensor.name);
  out += fmt::format(":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", name_of(tensor.dtype),
                     base::joined(tensor.shape, ","), begin, end);
}

void check_length(std::size_t json_bytes) {
  if (json_bytes > kMaxHeaderBytes) {
    throw SafetensorsError(
        Kind::kHeaderTooLarge,
        fmt::format("the safetensors header would be {} bytes or more, above the limit of {}; spread the "
                    "tensors over more files",
                    json_bytes, kMaxHeaderBytes));
  }
}

/// Prefix, JSON, blanks up to the alignment.
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

EncodedHeader encode_header(std::span<const TensorToStore> tensors, const std::map<std::string, std::string>& metadata,
                            std::uint64_t align_bytes) {
  if (align_bytes < 8 || !std::has_single_bit(align_bytes)) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("alignment of the data section is {} bytes; it must be a power of two, at least 8", align_bytes));
  }
  for (const TensorToStore& tensor : tensors) check_tensor(tensor);
  EncodedHeader out;
  out.order = file_order(tensors);
  out.data_offset.resize(tensors.size());
  std::string json = "{";
  if (!metadata.empty()) append_metadata(json, metadata);
  for (const std::size_t i : out.order) {
    const TensorToStore& tensor = tensors[i];
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
