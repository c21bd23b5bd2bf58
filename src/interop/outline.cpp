#include "interop/outline.hpp"

#include <algorithm>
#include <cstring>

#include "base/mix.hpp"

namespace cairn::interop {

void NameSum::add(std::string_view name) {
  std::uint64_t hash = base::split_mix64(name.size());
  for (std::size_t at = 0; at < name.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data() + at, std::min(sizeof word, name.size() - at));
    hash = base::mix64((hash ^ word) * 0x100000001b3ULL);
  }
  ++count;
  sum += hash;
}

FileSummary summary_of(const format::SafetensorsHeader& header) {
  FileSummary summary;
  for (const auto& entry : header.tensors) summary.names.add(entry.name);
  summary.data_bytes = header.file_bytes - header.data_start;
  return summary;
}

IndexSummary summary_of(const format::HfIndex& index) {
  IndexSummary summary(index.files.size());
  for (const format::IndexEntry& tensor : index.tensors) summary[tensor.file].add(tensor.name);
  return summary;
}

}  // namespace cairn::interop
