// parse_header: text checks, JSON, then the reference's validation in the reference's order (FORMAT.md, "Data files").
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/safetensors.hpp"
#include "format/safetensors_sax.hpp"
#include "format/safetensors_size.hpp"
#include "nlohmann/json.hpp"

namespace cairn::format {
namespace {

using Kind = SafetensorsErrorKind;

[[noreturn]] void fail(Kind kind, std::string_view path, const std::string& what) {
  throw SafetensorsError(kind, fmt::format("{}: {}", base::one_line(path), what));
}

[[noreturn]] void fail_tensor(Kind kind, std::string_view path, const TensorEntry& tensor, const std::string& what) {
  fail(kind, path, fmt::format("tensor '{}': {}", base::printable(tensor.name), what));
}

/// What the JSON library would let pass: it skips a byte order mark and takes a NUL for the end of the text.
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
         fmt::format("safetensors header: NUL at byte {} of the header; padding must be blanks", nul));
  }
}

/// By sorting, since a hash table can be made quadratic by the names a file chooses.
void check_unique(const std::vector<TensorEntry>& tensors, std::string_view path) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return tensors[a].name < tensors[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](auto a, auto b) { return tensors[a].name == tensors[b].name; });
  if (twice != order.end()) fail_tensor(Kind::kDuplicateKey, path, tensors[*twice], "the name appears twice");
}

void check_tensor(const TensorEntry& tensor, std::uint64_t start, std::string_view path) {
  if (tensor.begin != start || tensor.end < tensor.begin) {
    fail_tensor(
        Kind::kInvalidOffset, path, tensor,
        fmt::format("data_offsets [{}, {}] do not continue at {}, where the tensor before it ends; tensors must "
                    "lie end to end without holes or overlaps",
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

}  // namespace

SafetensorsHeader parse_header(std::string_view json, std::uint64_t file_bytes, std::string_view path) {
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
  HeaderEvents events(path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  check_unique(events.tensors, path);
  header.tensors = std::move(events.tensors);
  header.metadata = std::move(events.metadata);
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_data(header, path);
  return header;
}

}  // namespace cairn::format
