// torch DCP's sharded safetensors: every file is valid by itself and holds boxes under the full tensor names.
//
// Written by torch.distributed.checkpoint's HuggingFaceStorageWriter(save_distributed=True), and by Cairn's own shards
// output. No index; the global shape is the largest offset + size over all files, as torch reads it.
#pragma once

#include <string>
#include <vector>

#include "format/stored_checkpoint.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// The tensors of sharded files (at least one). Equal boxes are replicas: the one in the first file is taken. Empty
/// boxes are dropped, except that a tensor without elements keeps one. Throws Error(kFormat or kNotFound), naming
/// tensor and files: a numbered file missing, two saves mixed, contradicting dtypes, ranks or sections, an overlap, a
/// hole.
std::vector<format::StoredTensor> read_dcp_files(const std::vector<std::string>& files, Reading& reading);

}  // namespace cairn::interop
