#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/manifest.hpp"
#include "format/manifest_keys.hpp"
#include "format/run_log.hpp"
#include "format/safetensors.hpp"
#include "fuzz_checks.hpp"
#include "fuzz_entry.hpp"

namespace cairn::fuzz {
namespace {

using namespace cairn::format;

/// Whether `parse` accepted its input; see fuzz_checks.hpp.
bool accepted(const std::function<void()>& parse) {
  const auto refusal = refusal_of(parse, {ErrorKind::kFormat, ErrorKind::kIntegrity});
  require(!refusal || refusal->starts_with("path: "), "a message must begin with the path");
  return !refusal;
}

void check_header(const SafetensorsHeader& header) {
  std::vector<Tensor> tensors;
  for (const TensorEntry& entry : header.tensors) {
    tensors.push_back({std::string(entry.name), entry.dtype, {entry.shape.begin(), entry.shape.end()}});
  }
  const EncodedHeader encoded = encode_header(tensors, header.metadata, 8);
  require(encoded.data_bytes == header.file_bytes - header.data_start, "the data of an accepted file must be covered");
  const auto again = parse_header(std::string_view(encoded.bytes).substr(kPrefixBytes),
                                  encoded.bytes.size() + encoded.data_bytes, "path");
  require(again.metadata == header.metadata, "metadata must survive encoding");
  require(again.tensors.size() == header.tensors.size(), "tensors must survive encoding");
}

bool is_same(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  const auto alike = [](const TensorEntry& x, const TensorEntry& y) {
    return x.name == y.name && x.dtype == y.dtype && std::ranges::equal(x.shape, y.shape) && x.begin == y.begin &&
           x.end == y.end;
  };
  return a.metadata == b.metadata && a.data_start == b.data_start && a.file_bytes == b.file_bytes &&
         std::ranges::equal(a.tensors, b.tensors, alike);
}

/// Both parsers must give the same header, or the same refusal.
void feed_header(std::string_view json, std::uint64_t file_bytes) {
  SafetensorsHeader header;
  SafetensorsHeader strict;
  const auto refusal = refusal_of([&] { header = parse_header(json, file_bytes, "path"); }, {ErrorKind::kFormat});
  const auto judged =
      refusal_of([&] { strict = parse_header_strictly(json, file_bytes, "path"); }, {ErrorKind::kFormat});
  require(refusal == judged, "both parsers must give the same verdict");
  require(!refusal || refusal->starts_with("path: "), "a message must begin with the path");
  if (refusal) return;
  require(is_same(header, strict), "both parsers must give the same header");
  check_header(header);
}

void feed_file(std::string_view input) {
  std::uint64_t length = 0;
  if (!accepted([&] { length = header_length(base::as_bytes(input.substr(0, 64)), input.size(), "path"); })) return;
  feed_header(input.substr(kPrefixBytes, length), input.size());
}

/// Feeds the input as a header, with data of a few sizes behind it.
void feed_headers(std::string_view input) {
  for (const std::uint64_t data_bytes : {std::uint64_t{0}, std::uint64_t{16}, std::uint64_t{24}}) {
    feed_header(input, kPrefixBytes + input.size() + data_bytes);
  }
}

bool is_same(const HfIndex& a, const HfIndex& b) {
  return a.tensors == b.tensors && a.files == b.files && a.metadata == b.metadata && a.extra == b.extra;
}

void feed_index(std::string_view input) {
  HfIndex index;
  HfIndex strict;
  const auto refusal = refusal_of([&] { index = parse_hf_index(input, "path"); }, {ErrorKind::kFormat});
  const auto judged = refusal_of([&] { strict = parse_hf_index_strictly(input, "path"); }, {ErrorKind::kFormat});
  require(refusal == judged, "both parsers must give the same verdict");
  require(!refusal || refusal->starts_with("path: "), "a message must begin with the path");
  if (refusal) return;
  require(is_same(index, strict), "both parsers must give the same index");
  const HfIndex again = parse_hf_index(encode_hf_index(index.tensors, index.files, {1, 2}), "path");
  require(again.tensors == index.tensors && again.files == index.files, "the index must survive encoding");
}

void feed_manifest(std::string_view input) {
  Manifest manifest;
  if (!accepted([&] { manifest = parse_manifest(input, "path"); })) return;
  const std::string text = encode_manifest(manifest);
  require(encode_manifest(parse_manifest(text, "path")) == text, "the manifest must survive encoding");
}

/// Corrects the checksum first, so that mutations reach the code behind its check.
void feed_sealed_manifest(std::string_view input) {
  std::string text(input);
  const std::size_t digits = own_checksum_place(text);
  if (digits == std::string::npos) return;
  text.replace(digits, kChecksumDigits, kChecksumDigits, '0');
  constexpr std::string_view kHex = "0123456789abcdef";
  std::uint32_t crc = crc32c(base::as_bytes(text));
  for (std::size_t i = kChecksumDigits; i-- > 0; crc >>= 4) text[digits + i] = kHex[crc & 0xf];
  feed_manifest(text);
}

void feed_blocks(std::span<const std::byte> input) {
  BlockTable table;
  if (!accepted([&] { table = decode_blocks(input, "path"); })) return;
  for (const FileBlocks& file : table.files) file_digest(file, table.block_bytes);
  const base::Bytes bytes = encode_blocks(table);
  require(encode_blocks(decode_blocks(bytes, "path")) == bytes, "the block table must survive encoding");
}

void put(std::span<std::byte> to, std::uint64_t value) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

/// Corrects length and checksum first, so that mutations reach the code behind their checks.
void feed_sealed_blocks(std::span<const std::byte> input) {
  namespace layout = blocks_layout;
  if (input.size() < layout::kHeaderBytes + layout::kTrailerBytes) return;
  base::Bytes bytes(input.begin(), input.end());
  put(std::span(bytes).subspan(40, 8), bytes.size());
  const auto body = std::span(bytes).first(bytes.size() - layout::kTrailerBytes);
  put(std::span(bytes).last(layout::kTrailerBytes), layout::masked(crc32c(body)));
  feed_blocks(bytes);
}

std::uint64_t calls_in(const RunLog& log) {
  std::uint64_t calls = log.calls.size();
  for (const LogSum& sum : log.sums) calls += sum.calls();
  return calls;
}

void feed_log(std::string_view input) {
  const RunLog log = parse_run_log(input);
  std::string text;
  for (const LogSum& sum : log.sums) text += encode_log_line(sum) + "\n";
  for (const LogCall& call : log.calls) text += encode_log_line(call) + "\n";
  const RunLog again = parse_run_log(text);
  require(again.damaged == 0 && again.newer == 0, "lines must survive encoding");
  require(again.calls.size() == log.calls.size() && again.sums.size() == log.sums.size(), "and so must their kinds");
  for (const std::size_t newest_bytes : {0, 500}) {
    const std::string smaller =
        aggregate_run_log(input, [](std::uint64_t step) { return step % 2 == 0; }, {newest_bytes, 500, 2});
    require(calls_in(parse_run_log(smaller)) == calls_in(log), "no call may be lost in sums");
  }
}

}  // namespace

void feed_all_parsers(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  feed_file(text);
  feed_headers(text);
  feed_index(text);
  feed_manifest(text);
  feed_sealed_manifest(text);
  feed_blocks(input);
  feed_sealed_blocks(input);
  feed_log(text);
  accepted([&] { check_relative_path(text, "path"); });
}

}  // namespace cairn::fuzz
