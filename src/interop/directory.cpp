// What a directory is, recognised in steps, and the words and numbers that the readers of dialects share.
#include "interop/directory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "format/manifest.hpp"
#include "interop/codings.hpp"
#include "interop/data_set.hpp"
#include "interop/dcp.hpp"
#include "interop/file_names.hpp"
#include "interop/outline.hpp"
#include "interop/paddle.hpp"
#include "interop/sharding_info.hpp"

namespace cairn::interop {

// Words and numbers for the readers of dialects.

namespace {

constexpr std::size_t kLongestPath = 4096;

}  // namespace

Reading::Reading(const Directory& directory) : directory_(directory) {
  for (const auto& [name, header] : directory.safetensors) {
    numbers_.emplace(name, static_cast<std::uint32_t>(numbers_.size()));
  }
}

const format::SafetensorsHeader& Reading::header(const std::string& file) const {
  return directory_.safetensors.at(file);
}

std::uint32_t Reading::number(const std::string& file) const { return numbers_.at(file); }

std::string Reading::raw_path_of(std::string_view file) const {
  return directory_.path.empty() ? std::string(file) : directory_.path + "/" + std::string(file);
}

std::string Reading::place() const {
  return directory_.path.empty() ? "the directory" : base::printable(directory_.path, kLongestPath);
}

std::string Reading::path_of(std::string_view file) const { return base::printable(raw_path_of(file), kLongestPath); }

Error Reading::error(ErrorKind kind, std::string_view file, const std::string& text) const {
  return {kind, path_of(file) + ": " + text};
}

format::PlacedTensor whole_tensor(std::string_view section, const format::TensorEntry& entry,
                                  const format::SafetensorsHeader& header, std::uint32_t file) {
  return {section, entry.name, entry.dtype, entry.shape, file, header.data_start + entry.begin};
}

std::string in_quotes(std::string_view name) { return "'" + base::printable(name) + "'"; }

std::string shown(std::string_view name) { return base::printable(name); }

std::string list_some(std::span<const std::string> names) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    out += (i == 0 ? "" : ", ") + base::printable(names[i]);
  }
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

// One directory, in steps: refuse what cannot be read, sort files into sets, read the sets of the dialect, join.

namespace {

/// No safetensors file: say what there is instead, where a name tells.
Error nothing_to_read(const Directory& directory, const Reading& reading) {
  const auto any = [&](std::string_view suffix) {
    return std::any_of(directory.others.begin(), directory.others.end(),
                       [&](const auto& file) { return file.first.ends_with(suffix); });
  };
  std::string hint = "it has no .safetensors file";
  if (std::find(directory.folders.begin(), directory.folders.end(), "sharded") != directory.folders.end()) {
    hint += "; look in its folder sharded";
  } else if (any(".distcp")) {
    hint += "; .distcp files of torch DCP are not read, only its safetensors files";
  } else if (any(".pdparams") || any(".pdopt")) {
    hint += "; PaddlePaddle's .pdparams and .pdopt files are not read, only unified checkpoints";
  } else if (any(".bin") || any(".pt") || any(".pth")) {
    hint += "; pickled torch files (.bin, .pt, .pth) are not read";
  }
  return {ErrorKind::kNotFound, fmt::format("{} is not a checkpoint that can be read: {}", reading.place(), hint)};
}

void refuse_mindspore_parts(const Reading& reading) {
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (!is_mindspore_part_name(file)) continue;
    throw reading.error(ErrorKind::kFormat, file,
                        "holds one rank's parts of a MindSpore Transformers checkpoint, which "
                        "are not read; convert it to Hugging Face files there");
  }
}

/// Every index becomes a set, and so does every stem of data files that no other set's index lists.
DataSets find_sets(const Reading& reading) {
  const Directory& directory = reading.directory();
  DataSets sets;
  std::set<std::string_view> referenced;
  const auto add_index = [&](const std::string& name, const std::string& file, const auto& read) {
    DataSet& set = sets[name];
    if (!set.index_file.empty()) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("lists the same files as {}; keep one of the two", shown(set.index_file)));
    }
    set.name = name;
    set.index_file = file;
    set.index = read();
    referenced.insert(set.index.files.begin(), set.index.files.end());
  };
  for (const auto& [file, text] : directory.json) {
    const auto name = set_of_index(file);
    if (name)
      add_index(*name, file,
                [&, &json = text, &path = file] { return format::parse_hf_index(json, reading.raw_path_of(path)); });
  }
  for (const auto& [file, index] : directory.indexes) {
    add_index(set_of_index(file).value(), file, [&given = index] { return given; });
  }
  for (const auto& [file, size] : directory.others) {
    if (set_of_index(file)) throw reading.error(ErrorKind::kFormat, file, "the index is too large to be read");
  }
  for (const auto& [file, header] : directory.safetensors) {
    const std::string name = parse_data_name(file).set;
    const auto known = sets.find(name);
    if (referenced.contains(file) && (known == sets.end() || known->second.index_file.empty())) continue;
    if (name.empty())
      throw reading.error(ErrorKind::kFormat, file, "the file has no name to call its tensors' section by");
    DataSet& set = sets[name];
    set.name = name;
    set.files.push_back(file);
  }
  return sets;
}

/// Cairn's own manifest knows the section of each file.
std::map<std::string, std::string> sections_of_manifest(const Reading& reading) {
  std::map<std::string, std::string> sections;
  const auto text = reading.directory().json.find("cairn.json");
  if (text == reading.directory().json.end()) return sections;
  for (const auto& file : format::parse_manifest(text->second, reading.raw_path_of("cairn.json")).data_files) {
    if (!file.section.empty()) sections.emplace(file.name, file.section);
  }
  return sections;
}

void name_sections(DataSets& sets, const Reading& reading) {
  const auto from_manifest = sections_of_manifest(reading);
  const auto is_variant = [](const auto& item) { return item.first.starts_with("model."); };
  const bool one_variant = !sets.contains("model") && std::count_if(sets.begin(), sets.end(), is_variant) == 1;
  std::set<std::string> taken;
  for (auto& [name, set] : sets) {
    const auto kept = set.files.empty() ? from_manifest.end() : from_manifest.find(set.files.front());
    if (kept != from_manifest.end()) {
      set.section = kept->second;
    } else if (const auto known = known_section(name)) {
      set.section = *known;
    } else if (sets.size() == 1 || (one_variant && is_variant(std::pair(name, 0)))) {
      set.section = "model";
    } else {
      set.section = name;
    }
    if (!taken.insert(set.section).second) set.section = name;
  }
}

/// Files that hold boxes of larger tensors; an index that lists a file as whole comes first.
std::vector<std::string> sharded_files(const DataSets& sets, const Reading& reading) {
  std::set<std::string_view> listed;
  for (const auto& [name, set] : sets) listed.insert(set.index.files.begin(), set.index.files.end());
  std::vector<std::string> sharded;
  std::string whole;
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (!listed.contains(file) && has_sharding_info(header)) {
      sharded.push_back(file);
    } else if (!listed.contains(file) && is_dcp_shard_name(file)) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("is named like a shard of torch DCP, but has no metadata {}", kDcpShardingInfoKey));
    } else if (whole.empty()) {
      whole = file;
    }
  }
  if (!sharded.empty() && !whole.empty()) {
    throw reading.error(
        ErrorKind::kFormat, whole,
        fmt::format("holds whole tensors, but {} holds parts (torch DCP): two checkpoints in one directory; "
                    "move one of them away",
                    shown(sharded.front())));
  }
  return sharded;
}

Strictness strictness_of(const DataSet& set, bool paddle) {
  if (!paddle) return Strictness::kExact;
  if (set.section != "optimizer") return Strictness::kPaddle;
  return is_quantised_paddle(set) ? Strictness::kPaddleQuantised : Strictness::kPaddleOptimizer;
}

void read_sets(const DataSets& sets, bool paddle, Reading& reading, Recognised& out) {
  std::size_t most = out.tensors.size();
  for (const auto& [file, header] : reading.directory().safetensors) most += header.tensors.size();
  out.tensors.reserve(most);
  for (const auto& [name, set] : sets) {
    const std::string& section = *out.sections.insert(set.section).first;
    const std::size_t first = out.tensors.size();
    read_set(set, strictness_of(set, paddle), reading, out.tensors);
    for (auto& tensor : std::span(out.tensors).subspan(first)) tensor.section = section;
  }
}

void sort_and_check(std::vector<format::PlacedTensor>& tensors, const Reading& reading) {
  const auto key = [](const format::PlacedTensor& t) { return std::tie(t.section, t.name); };
  // Sets come in the order of their sections, most of them sorted.
  const auto not_before = [&](const auto& a, const auto& b) { return !(key(a) < key(b)); };
  if (std::ranges::adjacent_find(tensors, not_before) == tensors.end()) return;
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const format::PlacedTensor& tensor : tensors) names.push_back(tensor.name);
  std::vector<format::PlacedTensor> sorted;
  sorted.reserve(tensors.size());
  for (const std::uint32_t number : base::order_of_texts(names)) sorted.push_back(tensors[number]);
  std::ranges::stable_sort(sorted, {}, &format::PlacedTensor::section);
  tensors = std::move(sorted);
  const auto same = std::adjacent_find(tensors.begin(), tensors.end(),
                                       [&](const auto& a, const auto& b) { return key(a) == key(b); });
  if (same == tensors.end()) return;
  throw Error(ErrorKind::kFormat, fmt::format("{}: section {} has two tensors {}", reading.place(),
                                              in_quotes(same->section), in_quotes(same->name)));
}

/// What a file says of how it holds its tensors, which is not true of a file that is made of it.
bool describes_file(const std::string& key, const std::string& value) {
  return key.starts_with(format::kCodingKey) || key == kCairnSectionsKey || key.starts_with("DCP_") ||
         (key == "format" && value == "np");  // a mark of PaddlePaddle's
}

void join_metadata(const Directory& directory, Recognised& out) {
  std::set<std::string> disputed;
  for (const auto& [file, header] : directory.safetensors) {
    for (const auto& [key, value] : header.metadata) {
      if (describes_file(key, value)) continue;
      if (out.metadata.emplace(key, value).first->second != value) disputed.insert(key);
    }
  }
  out.disputed_metadata.assign(disputed.begin(), disputed.end());
}

void warn_of_folders(Reading& reading) {
  const std::vector<std::string>& folders = reading.directory().folders;
  if (folders.empty()) return;
  reading.warn("sub-directories are neither read nor carried along: " + list_some(folders));
}

std::vector<std::string> carried_files(const Directory& directory) {
  std::vector<std::string> carried;
  for (const auto& [file, text] : directory.json) {
    if (!set_of_index(file) && !is_cairn_file(file)) carried.push_back(file);
  }
  for (const auto& [file, size] : directory.others) {
    if (!is_cairn_file(file)) carried.push_back(file);
  }
  std::sort(carried.begin(), carried.end());
  return carried;
}

}  // namespace

const char* name_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::kHuggingFace: return "Hugging Face";
    case Dialect::kDcpSafetensors: return "torch DCP safetensors";
    case Dialect::kPaddle: return "PaddlePaddle";
    case Dialect::kHdf5: return "HDF5 staging file";
  }
  return "unknown";
}

// The same without tensors: what all ranks found in their files, put together.

std::optional<Outline> outline(const Directory& directory, const FileSummaries& files, const IndexSummaries& indexes) {
  Reading reading(directory);
  if (directory.safetensors.empty()) return std::nullopt;
  refuse_mindspore_parts(reading);
  refuse_unmerged_paddle(reading);
  DataSets sets = find_sets(reading);
  name_sections(sets, reading);
  if (is_paddle(sets, reading)) return std::nullopt;
  for (const auto& [file, header] : directory.safetensors) {
    if (is_dcp_shard_name(file) || has_sharding_info(header) || has_codings(header)) return std::nullopt;
  }
  Outline out;
  for (const auto& [name, set] : sets) {
    const auto index = indexes.find(set.index_file);
    if (!is_as_summarised(set, files, index == indexes.end() ? nullptr : &index->second, reading)) return std::nullopt;
    for (const std::string& file : set.index_file.empty() ? set.files : set.index.files) {
      if (!out.section_of_file.emplace(file, set.section).second) return std::nullopt;
    }
  }
  Recognised joined;
  join_metadata(directory, joined);
  out.metadata = std::move(joined.metadata);
  out.disputed_metadata = std::move(joined.disputed_metadata);
  out.carried = carried_files(directory);
  warn_of_folders(reading);
  out.warnings = reading.take_warnings();
  return out;
}

Recognised recognise(const Directory& directory) {
  Reading reading(directory);
  if (directory.safetensors.empty()) throw nothing_to_read(directory, reading);
  refuse_mindspore_parts(reading);
  refuse_unmerged_paddle(reading);
  DataSets sets = find_sets(reading);
  name_sections(sets, reading);

  Recognised out;
  if (const auto sharded = sharded_files(sets, reading); !sharded.empty()) {
    out.dialect = Dialect::kDcpSafetensors;
    out.sharded = read_dcp_files(sharded, reading);
    for (const format::StoredTensor& tensor : out.sharded) {
      out.tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape, 0, 0, true, tensor.boxes});
    }
  } else if (is_paddle(sets, reading)) {
    out.dialect = Dialect::kPaddle;
    refuse_scales_without_codec(sets, reading);
    read_sets(sets, /*paddle=*/true, reading, out);
    finish_paddle(out.tensors, sets, reading);
    out.quantised = find_quantised_moments(out.tensors, sets, reading);
  } else {
    read_sets(sets, /*paddle=*/false, reading, out);
  }
  sort_and_check(out.tensors, reading);
  add_codings(out, reading);
  for (const auto& [file, header] : directory.safetensors) {
    out.files.push_back({file, header.file_bytes});
    out.stores.push_back(header.store);
  }
  join_metadata(directory, out);
  out.carried = carried_files(directory);
  warn_of_folders(reading);
  out.warnings = reading.take_warnings();
  return out;
}

}  // namespace cairn::interop
