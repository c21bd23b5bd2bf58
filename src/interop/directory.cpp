// Determines the dialect of a directory, describes its tensors, and adds the parts common to all dialects.
#include "interop/directory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "interop/codings.hpp"
#include "interop/dialect.hpp"
#include "interop/file_names.hpp"
#include "interop/folders.hpp"
#include "interop/outline.hpp"
#include "interop/reading.hpp"
#include "interop/sharding_info.hpp"

namespace cairn::interop {
namespace {

/// The first explanation for a file: ".distcp files of torch DCP are not read ...".
std::string why_no_file_is_read(const Directory& directory) {
  for (const auto& [file, size] : directory.others) {
    if (std::string why = why_unread(file); !why.empty()) return why;
  }
  return {};
}

/// "; 'model.SAFETENSORS' is passed over ...", for the first name that would be read in lower case.
std::string hint_of_case(const Directory& directory) {
  for (const auto& [file, size] : directory.others) {
    if (!is_data_name(base::lower(file))) continue;
    return fmt::format("; names of data files end in .safetensors, in lower case: rename {}", shown(file));
  }
  return {};
}

/// Explains why existing files are not read, if one of their names shows the reason.
Error nothing_to_read(const Directory& directory, const Reading& reading) {
  std::string hint = "it has no .safetensors file" + hint_of_case(directory);
  if (std::ranges::find(directory.folders, "sharded") != directory.folders.end()) {
    hint += "; look in its folder sharded";
  } else {
    const std::string folders = directory.access.list ? hint_of_folders(directory.folders, directory.access.list) : "";
    const std::string why = why_no_file_is_read(directory);
    if (!folders.empty()) hint += "; " + folders;
    if (!why.empty()) hint += "; " + why;
  }
  return {ErrorKind::kNotFound, fmt::format("{} is not a checkpoint that can be read: {}", reading.place(), hint)};
}

void sort_and_check(std::vector<format::PlacedTensor>& tensors, const Reading& reading) {
  const auto key = [](const format::PlacedTensor& t) { return std::tie(t.section, t.name); };
  // Mostly the tensors are sorted already: set by set, and in each set by name.
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

/// Whether a key describes how its file holds tensors, and so does not apply to files made from that file.
bool describes_file(const std::string& key, const std::string& value) {
  return key.starts_with(format::kCodingKey) || key == kCairnSectionsKey ||
         std::ranges::any_of(dialects(), [&](const Dialect* dialect) { return dialect->describes_file(key, value); });
}

void join_metadata(const Directory& directory, Description& out) {
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
  std::vector<std::string> folders = reading.directory().folders;
  std::erase_if(folders, [&](const std::string& folder) { return reading.is_used(folder) || is_bystander(folder); });
  if (folders.empty()) return;
  reading.warn("sub-directories are neither read nor carried along: " + list_some(folders));
}

std::vector<std::string> carried_files(const Reading& reading) {
  const Directory& directory = reading.directory();
  std::set<std::string_view> data;
  for (const format::StoredFile& file : reading.files()) data.insert(file.name);
  std::vector<std::string> carried;
  for (const auto& [file, text] : directory.json) {
    if (!set_of_index(file) && !is_cairn_file(file)) carried.push_back(file);
  }
  for (const auto& [file, size] : directory.others) {
    if (!is_cairn_file(file) && !data.contains(file) && file_kind(file) != FileKind::kMark) carried.push_back(file);
  }
  std::sort(carried.begin(), carried.end());
  return carried;
}

/// Reports signal files, which are not carried.
void tell_of_signals(const Reading& reading, About& about) {
  const auto count = std::ranges::count_if(reading.directory().others,
                                           [](const auto& file) { return file_kind(file.first) == FileKind::kMark; });
  if (count == 0) return;
  about.left.push_back(base::counted(static_cast<std::uint64_t>(count), "signal file") +
                       " of an asynchronous save: they say that it ended");
}

/// The dialect that has the form with this word, which Cairn's manifest gives; it takes precedence over names and
/// metadata. Null if the word is empty, or only a later version has it.
const Dialect* dialect_of_form(const std::string& word) {
  for (const Dialect* dialect : dialects()) {
    const auto is_called = [&](const Form* form) { return form->traits().word == word; };
    if (std::ranges::any_of(dialect->forms(), is_called)) return dialect;
  }
  return nullptr;
}

const Dialect* find_dialect(Reading& reading) {
  if (const Dialect* dialect = dialect_of_form(reading.directory().form)) return dialect;
  for (const Dialect* dialect : dialects()) {
    if (dialect->recognises(reading)) return dialect;
  }
  return nullptr;
}

/// Describes everything except tensors. Takes all warnings, including those that describe() added.
void describe_rest(const Dialect& dialect, Reading& reading, Description& out) {
  out.about.dialect = dialect.name();
  dialect.tell(reading, out.about);
  join_metadata(reading.directory(), out);
  out.carried = carried_files(reading);
  tell_of_signals(reading, out.about);
  warn_of_folders(reading);
  out.warnings = reading.take_warnings();
}

}  // namespace

void take_manifest(Directory& directory, const format::Manifest& manifest) {
  directory.manifest = manifest.data_files;
  directory.form = manifest.form;
  if (manifest.data_files.empty() && directory.form.empty()) directory.form = "hf";  // older manifests name no form
}

void Recognised::add(format::StoredTensor tensor) {
  const format::StoredTensor& kept = made.emplace_back(std::move(tensor));
  tensors.push_back({kept.section, kept.name, kept.dtype, kept.shape, 0, 0, true, kept.boxes});
}

std::optional<Outline> outline(const Directory& directory, const FileSummaries& files, const IndexSummaries& indexes) {
  Reading reading(directory);
  const Dialect* const dialect = find_dialect(reading);
  if (dialect == nullptr) return std::nullopt;
  auto section_of_file = dialect->outline(reading, files, indexes);
  if (!section_of_file) return std::nullopt;
  Outline out;
  out.section_of_file = std::move(*section_of_file);
  describe_rest(*dialect, reading, out);
  return out;
}

Recognised recognise(const Directory& directory) {
  Reading reading(directory);
  const Dialect* const dialect = find_dialect(reading);
  if (dialect == nullptr) throw nothing_to_read(directory, reading);
  Recognised out;
  dialect->describe(reading, out);
  describe_rest(*dialect, reading, out);
  sort_and_check(out.tensors, reading);
  add_codings(out, reading);
  out.files = reading.files();
  for (const auto& [file, header] : directory.safetensors) out.stores.push_back(header.store);
  return out;
}

}  // namespace cairn::interop
