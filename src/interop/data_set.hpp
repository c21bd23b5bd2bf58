// A Hugging Face file set: one file, numbered files, or the files that an index lists. Tensors are whole.
//
// The index decides which files belong to the set. A file with the set's name that the index does not list is an error:
// it is a leftover of another save, and it is unknown which of the two saves the user wants to load. If the user trusts
// the index (Directory::trusts_index), all that it does not list is ignored instead.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/hf_index.hpp"
#include "interop/directory.hpp"
#include "interop/file_numbers.hpp"

namespace cairn::interop {

class Reading;

struct DataSet {
  std::string name;  ///< "model", "optimizer", "model.fp16"
  std::string section;
  std::string index_file;  ///< empty: none
  format::HfIndex index;   ///< content of index_file
  bool has_map = true;  ///< false: the index lists no tensors, like the index of an optimizer whose ranks keep separate
                        ///< files
  std::vector<std::string> files;  ///< files with the set's name, in name order; without index_file, only unlisted ones
};

using DataSets = std::map<std::string, DataSet>;  ///< by name

/// Every index becomes a set, and so does every stem of data files that another set's index does not list. The manifest
/// or the names of the sets determine each set's section. Reading::sets() has the result.
DataSets find_sets(const Reading& reading);

/// The allowed differences between a set's files and its index. By default both name the same tensors, each once.
struct IndexRules {
  bool takes_unlisted = false;  ///< tensors that the index does not list are also read
  bool has_total_size = true;   ///< `total_size` is the size of the tensors in the files
  const char* twice_hint = "";  ///< ends the message about a tensor in two files
  /// Whether a tensor may be in a second file too; the file that the index names is used. Null: no tensor may.
  bool (*may_repeat)(const format::TensorEntry& copy, const format::TensorEntry& listed) = nullptr;
  /// Whether an unlisted tensor is expected, so that no warning names it. Null: no tensor is.
  bool (*is_expected)(std::string_view unlisted) = nullptr;
  /// The listed tensor that may be missing if this unlisted tensor is stored. Empty or null: no tensor may be missing.
  std::string_view (*stands_for)(std::string_view unlisted) = nullptr;
};

/// Throws Error(kFormat) for an index without a map.
void require_maps(Reading& reading);

/// The rules for a set; nothing for a set whose tensors another reader handles.
using RulesOf = std::function<std::optional<IndexRules>(const DataSet&)>;

/// Adds the tensors and sections of all sets for which there are rules. Throws Error(kFormat or kNotFound), naming file
/// and tensor, if files are missing, contradict an index or each other, or hold one rank's slices; warns if total_size
/// differs.
void read_sets(Reading& reading, Recognised& out, const RulesOf& rules_of);

}  // namespace cairn::interop
