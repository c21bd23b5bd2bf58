// Recognises a directory of whole tensors from summaries: each data file and index is read by one rank, and no rank
// has all their tensors.
//
// Unusual or inconsistent directories have no outline: recognise() then reads all of it, and describes or refuses it.
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

/// A checksum of a set of names: unequal sets have equal sums with a probability of 2^-64. An error of this kind is
/// harmless, since loads use the files' content, whatever an index lists.
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

/// The sum of the names that an index lists for each file, in the order of HfIndex::files.
using IndexSummary = std::vector<NameSum>;
using IndexSummaries = std::map<std::string, IndexSummary>;

FileSummary summary_of(const format::SafetensorsHeader& header);
IndexSummary summary_of(const format::HfIndex& index);

struct Outline : Description {
  std::map<std::string, std::string> section_of_file;
};

/// The Description by recognise() for a directory of whole tensors (Dialect::outline), and the section of each file's
/// tensors. The headers and indexes of `directory` may lack tensors. Nothing, or an Error, if recognise() must decide.
/// Without an index, a tensor in two files of a section is not detected.
std::optional<Outline> outline(const Directory& directory, const FileSummaries& files, const IndexSummaries& indexes);

/// Whether files and index (null: no summary of it) agree. Warns as read_sets() does; throws for wrong file numbers.
bool is_as_summarised(const DataSet& set, const FileSummaries& files, const IndexSummary* index, Reading& reading);

}  // namespace cairn::interop
