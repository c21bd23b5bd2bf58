// The index as Python writes it, straight to text: rank 0 makes it of 200,000 names, for which a tree of JSON values and
// a comparison sort of whole names take a third of a second.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/hf_index.hpp"

namespace cairn::format {
namespace {

constexpr std::size_t kKeyBytes = 8;

/// Eight bytes of a name as a number that compares as they do, and how many there are (kKeyBytes + 1: more follow).
struct Item {
  std::uint64_t key = 0;
  std::uint32_t left = 0;
  std::uint32_t entry = 0;

  [[nodiscard]] auto place() const { return std::pair(key, left); }
};

void set_key(Item& item, std::string_view name, std::size_t depth) {
  const std::string_view rest = name.substr(depth);
  item.left = static_cast<std::uint32_t>(std::min(rest.size(), kKeyBytes + 1));
  item.key = 0;
  if (rest.size() >= kKeyBytes && std::endian::native == std::endian::little) {
    std::memcpy(&item.key, rest.data(), kKeyBytes);
    item.key = __builtin_bswap64(item.key);
    return;
  }
  for (std::size_t i = 0; i < kKeyBytes; ++i) {
    item.key = item.key << 8 | (i < rest.size() ? static_cast<unsigned char>(rest[i]) : 0U);
  }
}

/// Sorts items whose names agree up to `depth`: by eight bytes, then each group of equal ones by the next eight.
void sort_by_name(std::span<Item> items, std::span<const IndexEntry> entries, std::size_t depth) {
  for (Item& item : items) set_key(item, entries[item.entry].name, depth);
  const auto before = [](const Item& a, const Item& b) { return a.place() < b.place(); };
  if (!std::is_sorted(items.begin(), items.end(), before)) std::sort(items.begin(), items.end(), before);
  for (std::size_t first = 0, last = 0; first < items.size(); first = last) {
    while (last < items.size() && items[last].place() == items[first].place()) ++last;
    if (last - first > 1 && items[first].left > kKeyBytes) {
      sort_by_name(items.subspan(first, last - first), entries, depth + kKeyBytes);
    }
  }
}

void check_utf8(std::string_view text, const char* what) {
  if (!base::is_utf8(text)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} '{}' is not UTF-8, so no index can hold it", what, base::printable(text)));
  }
}

/// By character: whether JSON text has it as it is.
constexpr std::array<bool, 256> kIsPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x7f; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

bool is_plain(std::string_view text) {
  bool plain = true;
  for (const char c : text) plain &= kIsPlain[static_cast<unsigned char>(c)];
  return plain;
}

void append_string(std::string& out, std::string_view text) {
  if (is_plain(text)) {
    out += '"';
    out += text;
    out += '"';
  } else {
    out += base::json_quoted(text, {.ascii = true});
  }
}

}  // namespace

std::string encode_hf_index(std::span<const IndexEntry> entries, std::span<const std::string> files,
                            const IndexTotals& totals) {
  std::vector<Item> items(entries.size());
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    check_utf8(entries[i].name, "tensor name");
    items[i].entry = i;
    bytes += entries[i].name.size() + files[entries[i].file].size() + 12;
  }
  for (const std::string& file : files) check_utf8(file, "file name");
  sort_by_name(items, entries, 0);
  std::string out = "{\n  \"metadata\": {\n";
  out.reserve(bytes + 200);
  if (totals.parameters != 0) out += fmt::format("    \"total_parameters\": {},\n", totals.parameters);
  out += fmt::format("    \"total_size\": {}\n  }},\n  \"weight_map\": {{", totals.size_bytes);
  const char* separator = "\n    ";
  for (const Item& item : items) {
    const IndexEntry& entry = entries[item.entry];
    out += separator;
    append_string(out, entry.name);
    out += ": ";
    append_string(out, files[entry.file]);
    separator = ",\n    ";
  }
  out += items.empty() ? "}\n}\n" : "\n  }\n}\n";
  return out;
}

std::string encode_hf_index(const std::map<std::string, std::string>& weight_map, std::uint64_t total_size,
                            std::uint64_t total_parameters) {
  std::vector<IndexEntry> entries;
  std::vector<std::string> files;
  for (const auto& [name, file] : weight_map) {
    entries.push_back({name, static_cast<std::uint32_t>(files.size())});
    files.push_back(file);
  }
  return encode_hf_index(entries, files, {total_size, total_parameters});
}

}  // namespace cairn::format
