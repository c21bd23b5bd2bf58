// A Hugging Face file set: one file, numbered files, or the files that an index lists.
// Every tensor is whole, in one file.
//
// The index decides which files belong to the set. A file of the same name that it does not list is an error: it is a
// leftover of another save, and it is unknown which of the two the user means to load.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "format/hf_index.hpp"
#include "format/stored_checkpoint.hpp"
#include "interop/directory.hpp"

namespace cairn::interop {

class Reading;

struct DataSet {
  std::string name;  ///< "model", "optimizer", "model.fp16"
  std::string section;
  std::string index_file;  ///< empty: none
  format::HfIndex index;   ///< of index_file
  bool has_map = true;     ///< false: the index lists no tensors, as of an optimizer whose ranks keep their files
  std::vector<std::string> files;  ///< files with the set's name, in name order
};

using DataSets = std::map<std::string, DataSet>;  ///< by name

/// Every index becomes a set, and so does every stem of data files that no other set's index lists. The manifest or the
/// set's name decides its section. Reading::sets() has the result.
DataSets find_sets(const Reading& reading);

/// How far a set's files may differ from its index. The default: they name the same tensors, each once.
struct IndexRules {
  bool takes_unlisted = false;  ///< tensors that the index does not list count too
  bool has_total_size = true;   ///< `total_size` is of these files
  const char* twice_hint = "";  ///< ends the message about a tensor in two files
  /// Whether a tensor may also stand in another file than the one that the index names, which is taken; null: none.
  bool (*may_repeat)(const format::TensorEntry& copy, const format::TensorEntry& listed) = nullptr;
  /// Whether an unlisted tensor is expected, so that no warning names it; null: none.
  bool (*is_expected)(std::string_view unlisted) = nullptr;
  /// The listed tensor that no file needs to hold where this unlisted one is stored; empty or null: none.
  std::string_view (*stands_for)(std::string_view unlisted) = nullptr;
};

/// Throws Error(kFormat) for an index without a map.
void require_maps(Reading& reading);

/// The first number missing from 1 on.
std::uint64_t first_missing_number(const std::set<std::uint64_t>& there);
/// "; so are numbers 3, 5" for those up to `count` that are missing in addition to `from`, the first one; or "". The
/// existing numbers are within 1 to `count`.
std::string other_missing_numbers(std::uint64_t from, std::uint64_t count, const std::set<std::uint64_t>& there);

/// Returns nothing for a set whose tensors another reader handles.
using RulesOf = std::function<std::optional<IndexRules>(const DataSet&)>;

/// Adds the tensors of all other sets of the directory, and their sections. Throws Error(kFormat or kNotFound), naming
/// file and tensor, when files contradict an index; warns when total_size differs.
void read_sets(Reading& reading, Recognised& out, const RulesOf& rules_of);

}  // namespace cairn::interop
