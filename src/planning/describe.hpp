// What this rank brings to a save or wants from a load: checked once, then flattened to numbered memory boxes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"

namespace cairn::checkpoint {

/// One box in memory: box `box` of shard number `shard`.
struct LocalBox {
  std::uint32_t shard = 0;
  Box box;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Memory memory = Memory::kHost;
};

/// The section and names of per-rank blobs: tensor "rank-00003" of section "rank_state", U8.
inline constexpr std::string_view kRankSection = "rank_state";
std::string rank_blob_name(int rank);

/// Throws Error(kUsage), naming the tensor, for: a section that is no file name, a name that is not UTF-8 or is
/// "__metadata__", more than 8 dimensions, a size that overflows, a box that does not fit, a sub-byte tensor cut inside a
/// byte, a null pointer, device memory without a device.
void check_shards(std::span<const Source> state);
void check_shards(std::span<const Target> targets);

/// The boxes in memory, numbered. Requires: check_shards().
std::vector<LocalBox> local_boxes(std::span<const Source> state);
std::vector<LocalBox> local_boxes(std::span<const Target> targets);
/// The same of one source, which gets the number `shard`; appends.
void add_boxes(const Source& source, std::uint32_t shard, std::vector<LocalBox>& out);

/// Everything a plan depends on, as bytes: equal bytes on all ranks mean that the last plan still holds.
base::Bytes describe(std::span<const Source> state, const Options& options);

}  // namespace cairn::checkpoint
