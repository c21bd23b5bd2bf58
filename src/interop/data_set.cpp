// Compares the tensors of a set's files with its index; if there is no index, file numbers must be complete.
#include "interop/data_set.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/sort_texts.hpp"
#include "base/text.hpp"
#include "interop/file_names.hpp"
#include "interop/outline.hpp"
#include "interop/rank_slices.hpp"
#include "interop/sharding_info.hpp"

namespace cairn::interop {
namespace {

using Tensors = std::vector<format::PlacedTensor>;

/// A tensor in one of the files.
struct Copy {
  const format::TensorEntry* entry = nullptr;
  const std::string* file = nullptr;
};

/// Makes tensors from copies. Copies in a file are mostly consecutive, so the last file is remembered.
class Placer {
 public:
  Placer(std::string_view section, const Reading& reading) : section_(section), reading_(reading) {}

  format::PlacedTensor placed(const Copy& copy) {
    if (copy.file != file_) {
      file_ = copy.file;
      header_ = &reading_.header(*file_);
      number_ = reading_.number(*file_);
    }
    return whole_tensor(section_, *copy.entry, *header_, number_);
  }

 private:
  std::string_view section_;
  const Reading& reading_;
  const std::string* file_ = nullptr;
  const format::SafetensorsHeader* header_ = nullptr;
  std::uint32_t number_ = 0;
};

/// Throws unless the file, which an index lists, holds whole tensors. torch also writes sharding information into files
/// of whole tensors, with offsets 0.
void check_whole(const std::string& file, const Reading& reading) {
  if (!has_sharding_info(reading.header(file))) return;
  for (const auto& [name, offsets] : read_sharding_info(file, reading)) {
    if (std::all_of(offsets.begin(), offsets.end(), [](std::uint64_t o) { return o == 0; })) continue;
    throw reading.error(ErrorKind::kFormat, file,
                        fmt::format("holds only a part of tensor {}, but an index lists the file; remove the index to "
                                    "read the directory as shards",
                                    in_quotes(name)));
  }
}

Error twice(const Copy& first, const Copy& second, const Reading& reading, const std::string& hint = "") {
  return reading.error(ErrorKind::kFormat, *second.file,
                       fmt::format("tensor {} is in this file and in {} as well{}", in_quotes(second.entry->name),
                                   shown(*first.file), hint));
}

/// Throws if two copies have the same name.
void check_once(std::span<const Copy> copies, const Reading& reading, const char* hint = "") {
  std::vector<std::string_view> names;
  names.reserve(copies.size());
  for (const Copy& copy : copies) names.push_back(copy.entry->name);
  if (const auto same = base::first_equal_texts(names)) {
    throw twice(copies[same->first], copies[same->second], reading, hint);
  }
}

// ---- with an index

constexpr const char* kTrustHint = "; --trust-index (Options::trust_index) reads just what the index lists";

/// The files of the index. Throws unless each is a data file and has whole tensors.
std::set<std::string> referenced_files(const DataSet& set, const Reading& reading) {
  std::set<std::string> files;
  std::uint32_t next = 0;  // files are numbered in the order of their first tensors
  for (const format::IndexEntry& tensor : set.index.tensors) {
    if (tensor.file != next) continue;
    ++next;
    const std::string& file = set.index.file_of(tensor);
    files.insert(file);
    if (!is_data_name(file)) {
      throw reading.error(ErrorKind::kFormat, set.index_file,
                          fmt::format("says that tensor {} is in {}, which is not a .safetensors file",
                                      in_quotes(tensor.name), in_quotes(file)));
    }
    check_whole(file, reading);
  }
  return files;
}

void refuse_leftovers(const DataSet& set, const std::set<std::string>& referenced, Reading& reading) {
  for (const std::string& file : set.files) {
    if (referenced.contains(file)) continue;
    if (reading.directory().trusts_index) {
      reading.warn(fmt::format("{} is ignored: {} does not list it", shown(file), shown(set.index_file)));
      continue;
    }
    throw reading.error(ErrorKind::kFormat, file,
                        fmt::format("{} does not list this file: one of the two is a leftover of another save; move it "
                                    "away{}",
                                    shown(set.index_file), kTrustHint));
  }
}

/// The tensors of the referenced files, compared with the index.
struct Matched {
  std::vector<Copy> listed;     ///< by number in the index; empty if the file does not hold the tensor
  std::vector<Copy> elsewhere;  ///< copies of listed tensors, in a file other than the listed one
  std::vector<Copy> unlisted;
  std::uint64_t all_bytes = 0;
  std::uint64_t listed_bytes = 0;
};

Matched match(const DataSet& set, const std::set<std::string>& files, const Reading& reading) {
  Matched out;
  out.listed.resize(set.index.tensors.size());
  for (const std::string& file : files) {
    std::size_t next = 0;  // files often hold tensors in the order of the index
    const auto file_number =
        static_cast<std::size_t>(std::ranges::find(set.index.files, file) - set.index.files.begin());
    for (const auto& entry : reading.header(file).tensors) {
      const Copy copy{&entry, &file};
      const std::uint64_t bytes = entry.end - entry.begin;
      out.all_bytes += bytes;
      const format::IndexEntry* const place = set.index.find(entry.name, next);
      if (place == nullptr) {
        out.unlisted.push_back(copy);
        continue;
      }
      const auto number = static_cast<std::size_t>(place - set.index.tensors.data());
      next = number + 1;
      if (place->file != file_number) {
        out.elsewhere.push_back(copy);
      } else {
        out.listed[number] = copy;
        out.listed_bytes += bytes;
      }
    }
  }
  return out;
}

/// Names that unlisted tensors stand for (IndexRules::stands_for), except the names in Matched::elsewhere.
std::set<std::string_view> stored_otherwise(const Matched& matched, const IndexRules& rules) {
  std::set<std::string_view> names;
  for (const Copy& copy : matched.unlisted) names.insert(rules.stands_for(copy.entry->name));
  for (const Copy& copy : matched.elsewhere) names.erase(copy.entry->name);
  return names;
}

void check_all_found(const DataSet& set, const IndexRules& rules, const Matched& matched, const Reading& reading) {
  std::set<std::string_view> elsewhere;
  if (rules.stands_for != nullptr) elsewhere = stored_otherwise(matched, rules);
  for (std::size_t i = 0; i < matched.listed.size(); ++i) {
    const format::IndexEntry& tensor = set.index.tensors[i];
    if (matched.listed[i].entry != nullptr || elsewhere.contains(tensor.name)) continue;
    std::string hint = "it is in no file of the set";
    for (const Copy& copy : matched.elsewhere) {
      if (copy.entry->name == tensor.name) hint = fmt::format("it is in {}", shown(*copy.file));
    }
    throw reading.error(ErrorKind::kFormat, set.index.file_of(tensor),
                        fmt::format("tensor {} is not in this file, as {} says; {}", in_quotes(tensor.name),
                                    shown(set.index_file), hint));
  }
}

void check_total_size(const DataSet& set, std::uint64_t listed_bytes, std::uint64_t all_bytes, Reading& reading) {
  const base::Json* found = set.index.metadata.find("total_size");
  if (found == nullptr) return;
  const auto says = [&](std::uint64_t bytes) {
    if (found->is_number_unsigned()) return found->whole_number() == bytes;
    return found->is_number_float() && found->real_number() == static_cast<double>(bytes);
  };
  // total_size may also count unlisted tensors, and further copies of listed ones.
  if (says(listed_bytes) || says(all_bytes)) return;
  constexpr std::size_t kShown = 40;
  reading.warn(fmt::format("{}: total_size is {}, but the tensors have {} bytes", shown(set.index_file),
                           base::shown_json(*found, kShown), listed_bytes));
}

/// Returns the tensors that the index does not list. Throws if the rules do not allow them, or if two have one name.
std::vector<Copy> take_unlisted(const DataSet& set, const IndexRules& rules, Matched& matched, Reading& reading) {
  std::vector<Copy> taken = matched.unlisted;
  if (!taken.empty() && !rules.takes_unlisted) {
    throw reading.error(
        ErrorKind::kFormat, *taken.front().file,
        fmt::format("holds tensor {}, which {} does not list; the index belongs to another save or is damaged",
                    in_quotes(taken.front().entry->name), shown(set.index_file)) +
            kTrustHint);
  }
  check_once(taken, reading, rules.twice_hint);
  if (rules.is_expected != nullptr) {
    std::erase_if(matched.unlisted, [&](const Copy& copy) { return rules.is_expected(copy.entry->name); });
  }
  if (!matched.unlisted.empty()) {
    reading.warn(
        fmt::format("{}: {} not listed, e.g. {}, and taken as well", shown(set.index_file),
                    base::counted(matched.unlisted.size(), "tensor of the files is", "tensors of the files are"),
                    in_quotes(matched.unlisted.front().entry->name)));
  }
  return taken;
}

/// Throws for a tensor that is also in a file other than the listed one, unless the rules allow it; then warns.
void settle_repeated(const DataSet& set, const IndexRules& rules, const Matched& matched, Reading& reading) {
  for (const Copy& copy : matched.elsewhere) {
    const auto number = set.index.find(copy.entry->name) - set.index.tensors.data();
    const Copy& listed = matched.listed[static_cast<std::size_t>(number)];
    if (rules.may_repeat != nullptr && rules.may_repeat(*copy.entry, *listed.entry)) continue;
    throw twice(listed, copy, reading, std::string(rules.twice_hint) + kTrustHint);
  }
  if (!matched.elsewhere.empty()) {
    const Copy& first = matched.elsewhere.front();
    reading.warn(
        fmt::format("{}: {} scalars stand in two files, e.g. {} also in {}; the file that the index names is used",
                    shown(set.index_file), matched.elsewhere.size(), in_quotes(first.entry->name), shown(*first.file)));
  }
}

/// Drops the tensors that neither the index lists nor the rules take, and copies of listed tensors in other files.
void ignore_others(const DataSet& set, const IndexRules& rules, Matched& matched, Reading& reading) {
  std::vector<Copy> ignored;
  if (!rules.takes_unlisted) ignored = std::exchange(matched.unlisted, {});
  std::erase_if(matched.elsewhere, [&](const Copy& copy) {
    const auto number = static_cast<std::size_t>(set.index.find(copy.entry->name) - set.index.tensors.data());
    const format::TensorEntry* const listed = matched.listed[number].entry;
    if (listed == nullptr || (rules.may_repeat != nullptr && rules.may_repeat(*copy.entry, *listed))) return false;
    ignored.push_back(copy);
    return true;
  });
  if (ignored.empty()) return;
  reading.warn(fmt::format("{} ignored, which {} does not list or has in another file, e.g. {} in {}",
                           base::counted(ignored.size(), "tensor is", "tensors are"), shown(set.index_file),
                           in_quotes(ignored.front().entry->name), shown(*ignored.front().file)));
}

void read_indexed(const DataSet& set, const IndexRules& rules, Reading& reading, Tensors& tensors) {
  const auto files = referenced_files(set, reading);
  for (const std::string& file : files) {
    if (file.find('/') != std::string::npos) reading.use_folder(file);
  }
  refuse_leftovers(set, files, reading);
  Matched matched = match(set, files, reading);
  check_all_found(set, rules, matched, reading);
  if (reading.directory().trusts_index) ignore_others(set, rules, matched, reading);
  settle_repeated(set, rules, matched, reading);
  if (rules.has_total_size) check_total_size(set, matched.listed_bytes, matched.all_bytes, reading);
  const std::vector<Copy> more = take_unlisted(set, rules, matched, reading);
  Placer placer(set.section, reading);
  for (const Copy& copy : matched.listed) {
    if (copy.entry != nullptr) tensors.push_back(placer.placed(copy));
  }
  for (const Copy& copy : more) tensors.push_back(placer.placed(copy));
}

// ---- without an index

/// The text for a missing file: its name, and the name that it would have if the files were numbered from 0.
std::string missing_file(const DataSet& set, std::uint64_t number, std::uint64_t count,
                         const std::set<std::uint64_t>& there) {
  std::string text = shown(name_of_number(number, set.files));
  if (number == count && there.size() + 1 == count && !there.contains(0)) {
    text += fmt::format(", or {} if they are numbered from 0", shown(name_of_number(0, set.files)));
  }
  return text;
}

/// Checks that there is one file without a number, or all of n numbered files (not all if the user named one alone).
void check_numbers(const DataSet& set, Reading& reading) {
  const std::string& first = set.files.front();
  const DataName model = parse_data_name(first);
  std::map<std::uint64_t, std::string> by_number;
  for (const std::string& file : set.files) {
    const DataName name = parse_data_name(file);
    if (name.numbered != model.numbered || name.count != model.count) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("belongs to another save than {}, and there is no index; move the files of the "
                                      "older save away",
                                      shown(first)));
    }
    if (!name.numbered) continue;
    if (name.number > name.count) {
      throw reading.error(ErrorKind::kFormat, file, fmt::format("its number is not one of 0 to {}", name.count));
    }
    const auto [known, added] = by_number.emplace(name.number, file);
    if (!added) {
      throw reading.error(ErrorKind::kFormat, file, fmt::format("bears the same number as {}", shown(known->second)));
    }
  }
  if (!model.numbered) return;
  if (reading.directory().alone) {
    if (model.count > 1) reading.warn(fmt::format("only file {} of {} is read", model.number, model.count));
    return;
  }
  std::set<std::uint64_t> numbers;
  for (const auto& [number, file] : by_number) numbers.insert(number);
  const NumberRange range = expected_numbers(model.count, numbers);
  const std::uint64_t next = first_missing_number(range, numbers);
  if (next <= range.last) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: file {} of {} of {} is missing ({}){}", reading.place(), next, model.count,
                            in_quotes(set.name), missing_file(set, next, model.count, numbers),
                            other_missing_numbers(next, range, numbers)));
  }
  if (numbers.size() > 1) {
    reading.warn(fmt::format("{} files of {} have no index; all of them are taken together", numbers.size(),
                             in_quotes(set.name)));
  }
}

void read_unindexed(const DataSet& set, Reading& reading, Tensors& tensors) {
  check_numbers(set, reading);
  std::vector<Copy> copies;
  for (const std::string& file : set.files) {
    for (const auto& entry : reading.header(file).tensors) copies.push_back({&entry, &file});
  }
  if (set.files.size() > 1) check_once(copies, reading);  // the names in one header are distinct
  Placer placer(set.section, reading);
  for (const Copy& copy : copies) tensors.push_back(placer.placed(copy));
}

/// The section of the set's files in Cairn's own manifest, or "".
std::string section_in_manifest(const DataSet& set, const Reading& reading) {
  const auto& files = reading.directory().manifest;
  if (set.files.empty()) return {};
  const auto found = std::ranges::find(files, set.files.front(), &format::ManifestFile::name);
  return found == files.end() ? "" : found->section;
}

/// The keys of an index without a map. Nothing if parse_hf_index() must read the index or report its error.
std::optional<base::Json> keys_without_map(const std::string& text, const std::string& path) {
  if (text.find("\"weight_map\"") != std::string::npos) return std::nullopt;  // indexes can be large
  auto document = base::Json::parse(text, path, {.dialect = base::JsonDialect::kPython});
  if (!document.is_object() || document.contains("weight_map")) return std::nullopt;
  return document;
}

/// Refuses a file that is a second copy of a file of another set by its name: it may be the better one of the two.
void refuse_copies(const DataSets& sets, const Reading& reading) {
  if (reading.directory().is_of_cairn()) return;
  for (const auto& [name, set] : sets) {
    for (const std::string& file : set.files) {
      const std::string original = original_of(file);
      if (original.empty() || !sets.contains(parse_data_name(original).set)) continue;
      const bool is_there = reading.directory().safetensors.contains(original);
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("by its name this is a second copy of {}{}", shown(original),
                      is_there ? "; move one of the two away" : ", which is not here; rename it, or move it away"));
    }
  }
}

void name_sections(DataSets& sets, const Reading& reading) {
  const auto is_variant = [](const auto& item) { return item.first.starts_with("model."); };
  const bool one_variant = !sets.contains("model") && std::count_if(sets.begin(), sets.end(), is_variant) == 1;
  std::set<std::string> taken;
  for (auto& [name, set] : sets) {
    const std::string kept = section_in_manifest(set, reading);
    if (!kept.empty()) {
      set.section = kept;
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

}  // namespace

DataSets find_sets(const Reading& reading) {
  const Directory& directory = reading.directory();
  DataSets sets;
  std::set<std::string_view> referenced;
  const auto add_index = [&](const std::string& file) -> DataSet& {
    const std::string name = set_of_index(file).value();
    DataSet& set = sets[name];
    if (!set.index_file.empty()) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("lists the same files as {}; keep one of the two", shown(set.index_file)));
    }
    set.name = name;
    set.index_file = file;
    return set;
  };
  for (const auto& [file, text] : directory.json) {
    if (!set_of_index(file)) continue;
    DataSet& set = add_index(file);
    const std::string path = reading.raw_path_of(file);
    if (auto keys = keys_without_map(text, path)) {
      set.has_map = false;
      set.index.extra = std::move(*keys);
    } else {
      set.index = format::parse_hf_index(text, path);
    }
    referenced.insert(set.index.files.begin(), set.index.files.end());
  }
  for (const auto& [file, index] : directory.indexes) {
    DataSet& set = add_index(file);
    set.index = index;
    referenced.insert(set.index.files.begin(), set.index.files.end());
  }
  std::map<std::string_view, std::string_view> index_of;
  for (const auto& [name, set] : sets) {
    for (const std::string& file : set.index.files) {
      const auto [known, is_new] = index_of.emplace(file, set.index_file);
      if (is_new) continue;
      throw reading.error(ErrorKind::kFormat, set.index_file,
                          fmt::format("lists {}, as {} does; keep one of the two indexes", shown(file),
                                      shown(std::string(known->second))));
    }
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
  refuse_copies(sets, reading);
  name_sections(sets, reading);
  return sets;
}

bool is_as_summarised(const DataSet& set, const FileSummaries& files, const IndexSummary* index, Reading& reading) {
  if (set.index_file.empty()) {
    check_numbers(set, reading);
    return true;
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < set.index.files.size(); ++i) {
    const auto file = files.find(set.index.files[i]);
    if (file == files.end() || index == nullptr || file->second.names != index->at(i)) return false;
    bytes += file->second.data_bytes;
  }
  std::vector<std::string_view> listed(set.index.files.begin(), set.index.files.end());
  std::ranges::sort(listed);
  const auto is_listed = [&](const std::string& file) { return std::ranges::binary_search(listed, file); };
  if (!std::ranges::all_of(set.files, is_listed)) return false;
  check_total_size(set, bytes, bytes, reading);
  return true;
}

namespace {

void require_map(const DataSet& set, const Reading& reading) {
  if (set.has_map) return;
  const std::string& text = reading.directory().json.at(set.index_file);
  static_cast<void>(format::parse_hf_index(text, reading.raw_path_of(set.index_file)));  // throws: the map is missing
}

/// A file that an index lists but that does not exist.
struct Missing {
  const DataSet* set = nullptr;
  std::string_view tensor;  ///< the first of its tensors
  std::size_t tensors = 0;
};

/// Files of the set that its index does not list, and that are complete: "model.safetensors", or all of a count. They
/// show that the index is a leftover. Empty if there are none.
std::vector<std::string> complete_beside(const DataSet& set) {
  std::map<std::uint64_t, std::map<std::uint64_t, std::string>> by_count;
  for (const std::string& file : set.files) {
    if (std::ranges::find(set.index.files, file) != set.index.files.end()) continue;
    const DataName name = parse_data_name(file);
    if (!name.numbered) return {file};
    if (name.number <= name.count) by_count[name.count].emplace(name.number, file);
  }
  for (const auto& [count, files] : by_count) {
    std::set<std::uint64_t> numbers;
    std::vector<std::string> names;
    for (const auto& [number, file] : files) {
      numbers.insert(number);
      names.push_back(file);
    }
    const NumberRange range = expected_numbers(count, numbers);
    if (first_missing_number(range, numbers) > range.last) return names;
  }
  return {};
}

/// "; model-00001-of-00002.safetensors and 1 more are a complete set ..." for the set of a missing file, or "".
std::string stale_hint(const DataSet& set, const Reading& reading) {
  const std::vector<std::string> beside = complete_beside(set);
  if (beside.empty()) return {};
  const auto is_there = [&](const std::string& file) { return reading.directory().safetensors.contains(file); };
  const std::string text = fmt::format("; {} {} a complete set that {} does not list", list_some(beside),
                                       beside.size() == 1 ? "is" : "are", shown(set.index_file));
  if (std::ranges::any_of(set.index.files, is_there)) return text;
  return text + ": the index is a leftover of another save; move it away";
}

std::string tensors_of(const Missing& missing) {
  std::string text = "tensor " + in_quotes(missing.tensor);
  if (missing.tensors > 1) text += fmt::format(" and {} more", missing.tensors - 1);
  return text;
}

/// Throws one error that names all sets' missing files: a machine's missing directory may have files of several sets.
void require_files(Reading& reading) {
  constexpr std::size_t kShown = 32;
  std::map<std::string_view, Missing> all;
  for (const auto& [name, set] : reading.sets()) {
    for (const format::IndexEntry& entry : set.index.tensors) {
      const std::string& file = set.index.file_of(entry);
      if (!is_data_name(file) || reading.directory().safetensors.contains(file)) continue;
      Missing& missing = all[file];
      if (missing.tensors++ == 0) missing.tensor = entry.name;
      missing.set = &set;
    }
  }
  if (all.empty()) return;
  const auto& [file, first] = *all.begin();
  // With several directories the path of a missing file is unknown.
  std::string text = fmt::format("{}: the file is missing; {} says that it holds {}",
                                 reading.looked().empty() ? reading.path_of(file) : shown(file),
                                 shown(first.set->index_file), tensors_of(first));
  std::size_t more = 0;
  for (auto other = std::next(all.begin()); other != all.end() && more < kShown; ++other, ++more) {
    text += fmt::format("{} {} ({})", more == 0 ? "; missing as well:" : ",", shown(other->first),
                        tensors_of(other->second));
  }
  if (all.size() > more + 1) text += fmt::format(" and {}", base::counted(all.size() - more - 1, "more file"));
  throw Error(ErrorKind::kNotFound, text + stale_hint(*first.set, reading) + reading.looked());
}

}  // namespace

void require_maps(Reading& reading) {
  for (const auto& [name, set] : reading.sets()) require_map(set, reading);
}

void read_sets(Reading& reading, Recognised& out, const RulesOf& rules_of) {
  for (const auto& [name, set] : reading.sets()) {
    if (!rules_of(set)) continue;
    require_map(set, reading);
    refuse_rank_slices(set, reading);
  }
  require_files(reading);
  std::size_t most = out.tensors.size();
  for (const auto& [file, header] : reading.directory().safetensors) most += header.tensors.size();
  out.tensors.reserve(most);
  for (const auto& [name, set] : reading.sets()) {
    const auto rules = rules_of(set);
    if (!rules) continue;
    const std::string& section = *out.sections.insert(set.section).first;
    const std::size_t first = out.tensors.size();
    if (set.index_file.empty()) {
      read_unindexed(set, reading, out.tensors);
    } else {
      read_indexed(set, *rules, reading, out.tensors);
    }
    for (auto& tensor : std::span(out.tensors).subspan(first)) tensor.section = section;
  }
}

}  // namespace cairn::interop
