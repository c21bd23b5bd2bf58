// A directory of whole tensors recognised from summaries: each data file and index is read by one rank, and nobody has all.
//
// Whatever is not plain, or does not fit, has no outline: recognise() then reads the directory as a whole, and says what it
// is, or what is wrong with it.
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

/// Of a set of names: two equal sums are of the same set, but for a chance of 1 in 2^64. What is read is what the files have,
/// whatever an index says: nothing wrong could come of it.
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

/// As in Recognised.
struct Outline {
  About about;
  std::map<std::string, std::string> section_of_file;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> disputed_metadata;
  std::vector<std::string> carried;
  std::vector<std::string> warnings;
};

/// What recognise() finds in a directory of whole tensors (Dialect::outline), but for its tensors: those of a file, in the section
/// that is said here. `directory`: headers and indexes need no tensors. Nothing, or an Error, when recognise() must judge.
/// A tensor that is in two files of a section is not noticed.
std::optional<Outline> outline(const Directory& directory, const FileSummaries& files, const IndexSummaries& indexes);

/// Whether files and index (null: there is none) agree as they must; warns as read_set.
bool is_as_summarised(const DataSet& set, const FileSummaries& files, const IndexSummary* index, Reading& reading);

}  // namespace cairn::interop
