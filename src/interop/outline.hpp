// A directory of whole tensors recognised from summaries: each data file and index is read by one rank, and no rank has
// all of them.
//
// A directory that is not plain, or does not fit, has no outline: recognise() then reads it as a whole, and says what
// it is, or what is wrong with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/data_set.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// A checksum of a set of names: two equal sums are of the same set, but for a chance of 1 in 2^64. Tensors are read
/// as the files have them, whatever an index says: nothing wrong could come of it.
struct NameSum {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;

  void add(std::string_view name);
  friend bool operator==(const NameSum&, const NameSum&) = default;
};

struct FileSummary {
  NameSum names;
  std::uint64_t data_bytes = 0;
};
using FileSummaries = std::map<std::string, FileSummary>;

/// Names by file, in the order of HfIndex::files.
using IndexSummary = std::vector<NameSum>;
using IndexSummaries = std::map<std::string, IndexSummary>;

FileSummary summary_of(const format::SafetensorsHeader& header);
IndexSummary summary_of(const format::HfIndex& index);

struct Outline : Description {
  std::map<std::string, std::string> section_of_file;
};

/// What recognise() finds in a directory of whole tensors (Dialect::outline), but for its tensors: those of a file are
/// in the section that is said here. `directory`: headers and indexes need no tensors. Nothing, or an Error, when
/// recognise() must judge. A tensor that is in two files of a section is not noticed.
std::optional<Outline> outline(const Directory& directory, const FileSummaries& files, const IndexSummaries& indexes);

/// Whether files and index (null: there is none) agree as they must; warns as read_set.
bool is_as_summarised(const DataSet& set, const FileSummaries& files, const IndexSummary* index, Reading& reading);

}  // namespace cairn::interop
