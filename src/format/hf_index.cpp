// The index as a table of file names, as text, and the rule that assigns tensors to files.
#include "format/hf_index.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::format {

// The index as a table of file names: read strictly.
// Every file name is checked here, so that a caller may join it to the directory.

namespace {

using base::Json;

std::map<std::string, std::string> read_weight_map(const base::JsonReader& map, std::string_view path) {
  map.check_object();
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map.json().items()) {  // up to 200,000: no reader for each
    const std::string where = fmt::format("{}: tensor '{}'", path, base::printable(name));
    if (!file.is_string()) {
      base::fail_format(where, fmt::format("its weight_map value must be a file name, found {}", file.type_name()));
    }
    const std::string& file_name = file.text();
    check_relative_path(file_name, where);
    out.emplace(name, file_name);
  }
  return out;
}

}  // namespace

HfIndex parse_hf_index(std::string_view text, std::string_view path) {
  Json document = base::Json::parse(text, path);
  const base::JsonReader reader(document, path);
  if (!reader.has("weight_map")) reader.fail("the key 'weight_map' is missing; this is not an index of tensors");
  HfIndex index;
  index.weight_map = read_weight_map(reader.at("weight_map"), path);
  document.take("weight_map");
  if (const auto metadata = reader.find("metadata")) {
    metadata->check_object();
    index.metadata = document.take("metadata");
  }
  index.extra = std::move(document);
  return index;
}

// The index as Python writes it, straight to text: rank 0 makes it of 200,000 names, for which a tree of JSON values
// and a comparison sort of whole names take a third of a second.

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

// The rule of huggingface_hub, step for step and quirks included: what is too large takes the next number at once,
// before the file that is still open, and tied tensors come last in the file that holds the first of them.

namespace {

constexpr std::size_t kNoFile = static_cast<std::size_t>(-1);

/// Items that share memory with an earlier one, in the order in which their first items appear.
struct Tied {
  std::size_t first;
  std::vector<std::size_t> rest;
};

}  // namespace

std::vector<std::vector<std::size_t>> split_hf(std::span<const SplitItem> items, std::uint64_t max_bytes) {
  std::vector<std::vector<std::size_t>> files;
  std::vector<std::size_t> open;
  std::uint64_t open_bytes = 0;
  std::vector<Tied> tied;
  std::unordered_map<std::int64_t, std::size_t> tied_of_storage;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const SplitItem& item = items[i];
    if (item.storage >= 0) {
      const auto [known, fresh] = tied_of_storage.try_emplace(item.storage, tied.size());
      if (!fresh) {
        tied[known->second].rest.push_back(i);
        continue;
      }
      tied.push_back({i, {}});
    }
    if (item.bytes > max_bytes) {
      files.push_back({i});
      continue;
    }
    if (item.bytes > max_bytes - open_bytes) {
      files.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(i);
    open_bytes += item.bytes;
  }
  if (!open.empty()) files.push_back(std::move(open));

  std::vector<std::size_t> file_of(items.size(), kNoFile);
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const std::size_t i : files[f]) file_of[i] = f;
  }
  for (const Tied& group : tied) {
    auto& file = files[file_of[group.first]];
    file.insert(file.end(), group.rest.begin(), group.rest.end());
  }
  return files;
}

std::string hf_file_name(std::string_view stem, std::size_t index, std::size_t count) {
  if (index >= count) {
    throw Error(ErrorKind::kInternal,
                fmt::format("file {} of {} of '{}' does not exist", index, count, base::printable(stem)));
  }
  if (count == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05d}-of-{:05d}.safetensors", stem, index + 1, count);
}

// Which names from a file may be joined to a directory. Judged as POSIX and as Windows would see them, on every system.

namespace {

const char* problem_of(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.find('\0') != std::string_view::npos) return "contains a NUL";
  if (name.find('\\') != std::string_view::npos) return "contains a backslash";
  if (name.front() == '/') return "is absolute";
  const char first = name.front();
  const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  if (letter && name.size() > 1 && name[1] == ':') return "has a drive letter";
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, slash - at);
    if (part.empty()) return "has an empty part";
    if (part == "." || part == "..") return "has a '.' or '..' part";
    at = slash + 1;
  }
  return nullptr;
}

}  // namespace

void check_relative_path(std::string_view name, std::string_view context) {
  if (const char* problem = problem_of(name)) {
    base::fail_format(context,
                      fmt::format("file name '{}' {}; it must be a relative path inside the checkpoint directory",
                                  base::printable(name), problem));
  }
}

}  // namespace cairn::format
