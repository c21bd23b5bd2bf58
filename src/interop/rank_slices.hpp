// Files that hold slices of ranks, or the same tensors as another file, in a directory that does not say what they are.
#pragma once

#include <functional>
#include <string>

#include "interop/data_set.hpp"
#include "interop/outline.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// The first file of the set that holds one rank's slices, by its name; null if there is none. Files of Cairn's are not
/// meant, nor adapters, whose files are often called after the rank of their matrices.
const std::string* rank_slice(const DataSet& set, const Reading& reading);

/// Throws Error(kFormat) for a file of rank_slice(), and for one whose name looks_numbered().
void refuse_rank_slices(const DataSet& set, const Reading& reading);

/// Warns of single files whose names differ in numbers only and whose tensors have the same names: slices of ranks, or
/// several steps of a run. `names_of`: the names in a file.
void warn_of_alike_files(Reading& reading, const std::function<NameSum(const std::string& file)>& names_of);

}  // namespace cairn::interop
