// What a directory is, recognised in steps, and the words and numbers that the readers of dialects share.
#include "interop/directory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "interop/codings.hpp"
#include "interop/data_set.hpp"
#include "interop/dcp/dcp.hpp"
#include "interop/file_names.hpp"
#include "interop/outline.hpp"
#include "interop/paddle/moments.hpp"
#include "interop/paddle/paddle.hpp"
#include "interop/reading.hpp"
#include "interop/sharding_info.hpp"

namespace cairn::interop {

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
