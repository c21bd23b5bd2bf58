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
  bool has_map = true;     ///< false: the index lists no tensors, as of an optimizer that PaddlePaddle did not merge
  std::vector<std::string> files;  ///< those that bear the set's name, in name order
};

using DataSets = std::map<std::string, DataSet>;  ///< by name

/// Every index becomes a set, and so does every stem of data files that no other set's index lists. The manifest or the
/// set's name decides its section. Reading::sets() has the result.
DataSets find_sets(const Reading& reading);

enum class Strictness {
  kExact,            ///< index and files name the same tensors, each once
  kPaddle,           ///< the same; messages may speak of Paddle's habits
  kPaddleOptimizer,  ///< unlisted tensors count too; scalar accumulators may stand in two files (the index decides)
  kPaddleQuantised,  ///< the same of an index that was made before the moments were quantised: it does not list scales,
                     ///< it lists first moments whose codes stand with the second's, and total_size is another one's
};

/// Throws Error(kFormat) for an index without a map.
void require_maps(Reading& reading);

/// The first number missing from 1 on.
std::uint64_t first_missing_number(const std::set<std::uint64_t>& there);
/// "; so are numbers 3, 5" for those up to `count` that are missing in addition to `from`, the first one; or "". The
/// existing numbers are within 1 to `count`.
std::string other_missing_numbers(std::uint64_t from, std::uint64_t count, const std::set<std::uint64_t>& there);

/// Nothing: another reader has the set's tensors.
using StrictnessOf = std::function<std::optional<Strictness>(const DataSet&)>;

/// Adds the tensors of all other sets of the directory, and their sections. Throws Error(kFormat or kNotFound), naming file
/// and tensor, for what contradicts an index; warns when total_size differs.
void read_sets(Reading& reading, Recognised& out, const StrictnessOf& strictness_of);

}  // namespace cairn::interop
