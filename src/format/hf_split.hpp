// Hugging Face's rule that deals tensors to files of a maximum size (huggingface_hub
// split_state_dict_into_shards_factory; vectors in tests/data/hf_split.json).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::format {

struct SplitItem {
  std::uint64_t bytes = 0;
  std::int64_t storage = -1;  ///< tensors with equal storage >= 0 share memory: counted once, kept in one file
};

/// Groups of item indices, one per file, in file order. In given order: an item above `max_bytes` gets a file of its
/// own at once, while the open file stays open; an item that does not fit closes the open file. No items, no files.
std::vector<std::vector<std::size_t>> split_hf(std::span<const SplitItem> items, std::uint64_t max_bytes);

/// "model.safetensors" for one file, else "model-00001-of-00002.safetensors" (five digits, or more when needed).
std::string hf_file_name(std::string_view stem, std::size_t index, std::size_t count);

}  // namespace cairn::format
