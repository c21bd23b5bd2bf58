// torch DCP's sharded safetensors: every file is valid on its own, and holds boxes under the full names of tensors.
//
// Written by torch.distributed.checkpoint's HuggingFaceStorageWriter(save_distributed=True), and by Cairn's own form
// `shards`. There is no index; the global shape is the largest offset + size over all files, as torch reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/stored_checkpoint.hpp"
#include "interop/data_set.hpp"
#include "interop/dialect.hpp"

namespace cairn::interop {

const Dialect& dcp_dialect();
const Form& shards_form();

// Checks that boxes cover a tensor exactly once; otherwise finds two boxes that overlap, or an element without a box.
//
// Sweeps along the dimension with most distinct offsets, and compares volumes: thousands of boxes take milliseconds.

struct CoverFault {
  bool overlap = false;   ///< otherwise a hole
  std::size_t first = 0;  ///< the two boxes that overlap, first < second
  std::size_t second = 0;
  std::vector<std::uint64_t> element;  ///< the first element of the hole in row-major order
};

/// Requires: the boxes lie inside `shape`, none is empty, no two are equal, and the tensor's elements fit 64 bits.
std::optional<CoverFault> find_cover_fault(std::span<const format::StoredBox> boxes,
                                           std::span<const std::uint64_t> shape);

/// Whether the name is like "shard-00001-model-00001-of-00002.safetensors".
bool is_dcp_shard_name(std::string_view file);

/// Files with sharding information that no index lists. Throws Error(kFormat) if there are other data files.
std::vector<std::string> sharded_files(const DataSets& sets, const Reading& reading);

/// The tensors of sharded files (at least one). Equal boxes are replicas, of which the replica in the first file is
/// used. Empty boxes are dropped, but a tensor without elements keeps one. Throws Error(kFormat or kNotFound), naming
/// tensor and files, for a missing numbered file, files of two saves, contradicting dtypes, dimensions or sections, an
/// overlap, or a hole.
std::vector<format::StoredTensor> read_dcp_files(const std::vector<std::string>& files, Reading& reading);

}  // namespace cairn::interop
