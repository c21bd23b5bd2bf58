// The JSON in `__metadata__` of sharded safetensors files: places of boxes in the whole tensors, and sections.
//
// "DCP_SHARDING_INFO" is torch's: {"<tensor>": {"saved_offsets": [o0, o1, ...]}, ...}. "cairn.sections" is Cairn's own
// addition: {"<tensor as stored>": ["<section>", "<tensor>"], ...} for the tensors that are not in section "model", so
// that a checkpoint converted to shards keeps its sections. The JSON comes from files, so every key is checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "format/safetensors.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

inline constexpr const char* kDcpShardingInfoKey = "DCP_SHARDING_INFO";
inline constexpr const char* kCairnSectionsKey = "cairn.sections";

/// Whether the file's metadata says that its tensors are boxes, perhaps of larger tensors.
bool has_sharding_info(const format::SafetensorsHeader& header);

/// Tensor name -> offset of its box, exactly one for each tensor of the file. Throws Error(kFormat), naming file and
/// tensor, unless the JSON is an object with the right number of offsets for each tensor of the file, and no other key.
std::map<std::string, std::vector<std::uint64_t>> read_sharding_info(const std::string& file, const Reading& reading);

struct SectionedName {
  std::string section;
  std::string name;
  friend bool operator==(const SectionedName&, const SectionedName&) = default;
  friend auto operator<=>(const SectionedName&, const SectionedName&) = default;
};

/// Name as stored -> section and name; empty without "cairn.sections". Throws Error(kFormat) for an invalid value.
std::map<std::string, SectionedName> read_sections(const std::string& file, const Reading& reading);

}  // namespace cairn::interop
