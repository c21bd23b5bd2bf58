// The index as a table of file names and as JSON text, and the rule that assigns tensors to files.
#include "format/hf_index.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/internal_error.hpp"
#include "base/json_reader.hpp"
#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/plain_json.hpp"

namespace cairn::format {

// Checked reading of the index. Every file name is checked here, so that a caller may join it to the directory.

namespace {

using base::Json;

constexpr base::JsonOptions kPython{.dialect = base::JsonDialect::kPython};

/// The weight map of an index, in the order of the index file.
class WeightMap {
 public:
  void add(std::string_view name, std::string_view file) {
    names_ += name;
    if (tensors_.empty() || files_[tensors_.back().file] != file) {
      const auto [at, is_new] = numbers_.try_emplace(std::string(file), static_cast<std::uint32_t>(files_.size()));
      if (is_new) files_.emplace_back(file);
      tensors_.push_back({name.size(), at->second});
    } else {
      tensors_.push_back({name.size(), tensors_.back().file});
    }
  }

  void reserve(std::size_t name_bytes) { names_.reserve(name_bytes); }

  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

  /// Sets tensors and files of the index; false if a name appears twice.
  bool give_to(HfIndex& index) && {
    auto names = std::make_shared<const std::string>(std::move(names_));
    const char* name = names->data();
    std::vector<IndexEntry> entries;
    entries.reserve(tensors_.size());
    for (const Tensor& tensor : tensors_) {
      entries.push_back({{name, tensor.name_bytes}, tensor.file});
      name += tensor.name_bytes;
    }
    const auto not_before = [](const IndexEntry& a, const IndexEntry& b) { return !(a.name < b.name); };
    if (std::ranges::adjacent_find(entries, not_before) != entries.end()) {
      entries = sorted(entries);
      if (std::ranges::adjacent_find(entries, {}, &IndexEntry::name) != entries.end()) return false;
    }
    std::vector<std::uint32_t> renumbered(files_.size(), static_cast<std::uint32_t>(-1));
    for (IndexEntry& entry : entries) {
      std::uint32_t& number = renumbered[entry.file];
      if (number == static_cast<std::uint32_t>(-1)) {
        number = static_cast<std::uint32_t>(index.files.size());
        index.files.push_back(files_[entry.file]);
      }
      entry.file = number;
    }
    index.tensors = std::move(entries);
    index.names = std::move(names);
    return true;
  }

 private:
  struct Tensor {
    std::size_t name_bytes = 0;
    std::uint32_t file = 0;
  };

  static std::vector<IndexEntry> sorted(const std::vector<IndexEntry>& entries) {
    std::vector<std::string_view> names;
    names.reserve(entries.size());
    for (const IndexEntry& entry : entries) names.push_back(entry.name);
    std::vector<IndexEntry> out;
    out.reserve(entries.size());
    for (const std::uint32_t number : base::order_of_texts(names)) out.push_back(entries[number]);
    return out;
  }

  std::string names_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> files_;
  std::map<std::string, std::uint32_t> numbers_;  // file name to index into `files_`
};

WeightMap read_weight_map(const base::JsonReader& map, std::string_view path) {
  map.check_object();
  WeightMap out;
  for (const auto& [name, file] : map.json().items()) {  // without a JsonReader for each of up to 200,000 entries
    const std::string where = fmt::format("{}: tensor '{}'", path, base::printable(name));
    if (!file.is_string()) {
      base::fail_format(where, fmt::format("its weight_map value must be a file name, found {}", file.type_name()));
    }
    const std::string& file_name = file.text();
    check_relative_path(file_name, where);
    if (!base::is_utf8(name) || !base::is_utf8(file_name)) {
      base::fail_format(where,
                        "its name or its file's has half of a surrogate pair (\\ud800 to \\udfff); names are UTF-8");
    }
    out.add(name, file_name);
  }
  return out;
}

/// Reads the parts of an index other than the weight map.
void read_rest(Json& document, std::string_view path, HfIndex& index) {
  if (const auto metadata = base::JsonReader(document, path).find("metadata")) {
    metadata->check_object();
    index.metadata = document.take("metadata");
  }
  index.extra = std::move(document);
}

/// The reason why a file name is refused, or null.
const char* problem_of(std::string_view name);

// File names that may be joined to a directory. Checked by the rules of POSIX and Windows, on every system.

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

// Fast path for an index as programs write it: PlainJson reads the map, the strict parser the short rest.

bool read_plain_map(PlainJson& json, WeightMap& map) {
  if (!json.take('{')) return false;
  if (json.take('}')) return true;
  do {
    std::string_view name;
    std::string_view file;
    if (!json.string(name) || !json.take(':') || !json.string(file)) return false;
    map.add(name, file);
  } while (json.take(','));
  return json.take('}');
}

/// The text with an empty map; nothing if the text is not plain.
std::optional<std::string> take_plain_map(std::string_view text, WeightMap& map) {
  PlainJson json(text);
  std::string rest;
  if (!json.take('{')) return std::nullopt;
  do {
    std::string_view key;
    if (!json.string(key) || !json.take(':')) return std::nullopt;
    if (key != "weight_map") {
      if (!json.skip_value()) return std::nullopt;
      continue;
    }
    if (!rest.empty()) return std::nullopt;  // a second map
    const char* const begin = json.place();
    if (!read_plain_map(json, map)) return std::nullopt;
    rest = std::string(text.data(), begin) + "{}" + std::string(json.place(), text.data() + text.size());
  } while (json.take(','));
  if (rest.empty()) return std::nullopt;
  return rest;
}

std::optional<HfIndex> parse_plain_index(std::string_view text, std::string_view path) {
  if (!base::is_utf8(text)) return std::nullopt;
  WeightMap map;
  map.reserve(text.size() / 2);
  const auto rest = take_plain_map(text, map);
  if (!rest || std::ranges::any_of(map.files(), [](const auto& file) { return problem_of(file) != nullptr; })) {
    return std::nullopt;
  }
  HfIndex index;
  try {
    Json document = Json::parse(*rest, path, kPython);
    if (!document.is_object()) return std::nullopt;
    document.take("weight_map");
    read_rest(document, path, index);
  } catch (const Error&) {
    return std::nullopt;  // parse_hf_index_strictly() reads the text again and reports the error
  }
  if (!std::move(map).give_to(index)) return std::nullopt;
  return index;
}

// Writes the index as Python does, directly as text: for rank 0's 200,000 names, a tree of JSON values and a comparison
// sort of whole names would take a third of a second.

void check_utf8(std::string_view text, const char* what) {
  if (!base::is_utf8(text)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} '{}' is not UTF-8, so no index can hold it", what, base::printable(text)));
  }
}

/// kIsPlain[c]: whether c is a printable ASCII character that JSON does not escape.
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

// The rule of huggingface_hub, step by step and with its quirks: a tensor that is too large gets the next file number
// at once, before the file that is still open, and tied tensors come last in the file that holds the first of them.

constexpr std::size_t kNoFile = static_cast<std::size_t>(-1);

/// An item, and the later items that share its memory.
struct Tied {
  std::size_t first;
  std::vector<std::size_t> rest;
};

}  // namespace

const IndexEntry* HfIndex::find(std::string_view name, std::size_t hint) const {
  if (hint < tensors.size() && tensors[hint].name == name) return &tensors[hint];
  const auto at = std::ranges::lower_bound(tensors, name, {}, &IndexEntry::name);
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

HfIndex parse_hf_index_strictly(std::string_view text, std::string_view path) {
  Json document = Json::parse(text, path, kPython);
  const base::JsonReader reader(document, path);
  if (!reader.has("weight_map")) reader.fail("the key 'weight_map' is missing; this is not an index of tensors");
  HfIndex index;
  WeightMap map = read_weight_map(reader.at("weight_map"), path);
  document.take("weight_map");
  read_rest(document, path, index);
  if (!std::move(map).give_to(index)) throw base::internal_error("an index has a key twice");
  return index;
}

HfIndex parse_hf_index(std::string_view text, std::string_view path) {
  if (auto index = parse_plain_index(text, path)) return std::move(*index);
  return parse_hf_index_strictly(text, path);
}

std::string encode_hf_index(std::span<const IndexEntry> entries, std::span<const std::string> files,
                            const IndexTotals& totals) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  std::size_t bytes = 0;
  for (const IndexEntry& entry : entries) {
    check_utf8(entry.name, "tensor name");
    names.push_back(entry.name);
    bytes += entry.name.size() + files[entry.file].size() + 12;
  }
  for (const std::string& file : files) check_utf8(file, "file name");
  std::string out = "{\n  \"metadata\": {\n";
  out.reserve(bytes + 200);
  if (totals.parameters != 0) out += fmt::format("    \"total_parameters\": {},\n", totals.parameters);
  out += fmt::format("    \"total_size\": {}\n  }},\n  \"weight_map\": {{", totals.size_bytes);
  const char* separator = "\n    ";
  for (const std::uint32_t number : base::order_of_texts(names)) {
    const IndexEntry& entry = entries[number];
    out += separator;
    append_string(out, entry.name);
    out += ": ";
    append_string(out, files[entry.file]);
    separator = ",\n    ";
  }
  out += entries.empty() ? "}\n}\n" : "\n  }\n}\n";
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
    throw base::internal_error(
        fmt::format("file {} of {} of '{}' does not exist", index, count, base::printable(stem)));
  }
  if (count == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05d}-of-{:05d}.safetensors", stem, index + 1, count);
}

void check_relative_path(std::string_view name, std::string_view context) {
  if (const char* problem = problem_of(name)) {
    base::fail_format(context,
                      fmt::format("file name '{}' {}; it must be a relative path inside the checkpoint directory",
                                  base::printable(name), problem));
  }
}

}  // namespace cairn::format
