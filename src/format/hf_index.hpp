// The Hugging Face index, `model.safetensors.index.json`, which maps tensors to files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace cairn::format {

/// A tensor of an index, and the number of its file.
struct IndexEntry {
  std::string_view name;
  std::uint32_t file = 0;

  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};

struct HfIndex {
  std::vector<IndexEntry> tensors;             ///< sorted by name; the names are views of `names`
  std::vector<std::string> files;              ///< each once, in the order in which `tensors` first uses them
  base::Json metadata = base::Json::object();  ///< "total_size" and other keys; may be absent in the file
  base::Json extra = base::Json::object();     ///< other top-level keys, kept
  std::shared_ptr<const std::string> names;    ///< all names in one string; shared by copies of the index

  /// The tensor with that name, or null. Tries index `hint` first.
  [[nodiscard]] const IndexEntry* find(std::string_view name, std::size_t hint = 0) const;
  /// The name of a tensor's file.
  [[nodiscard]] const std::string& file_of(const IndexEntry& tensor) const { return files[tensor.file]; }
};

/// Throws Error(kFormat) naming the index file and, if any, the tensor: not JSON, nested too deeply, no weight_map, a
/// value that is not a string, an unsafe file name, a name that is not UTF-8. The last of equal keys counts, as in
/// Python.
HfIndex parse_hf_index(std::string_view json, std::string_view path);
/// The general parser alone, to which parse_hf_index falls back for text that is not plain.
HfIndex parse_hf_index_strictly(std::string_view json, std::string_view path);

/// The index as transformers writes it: keys sorted at every level, indent 2, non-ASCII as \uXXXX, a newline at the
/// end. The metadata gets "total_size", and also "total_parameters" if `total_parameters` is not 0.
std::string encode_hf_index(const std::map<std::string, std::string>& weight_map, std::uint64_t total_size,
                            std::uint64_t total_parameters);

struct IndexTotals {
  std::uint64_t size_bytes = 0;
  std::uint64_t parameters = 0;
};

/// The same text from a list in any order. Names must be distinct; each entry's `file` must be an index into `files`.
std::string encode_hf_index(std::span<const IndexEntry> entries, std::span<const std::string> files,
                            const IndexTotals& totals);

/// A file name from an index or manifest may be joined to a directory only if it passes this check: relative, no "." or
/// ".." part, no backslash, drive letter or NUL, not empty. Throws Error(kFormat) naming `context`.
void check_relative_path(std::string_view name, std::string_view context);

// Hugging Face's rule that assigns tensors to files of a maximum size (huggingface_hub
// split_state_dict_into_shards_factory; vectors in tests/data/hf_split.json).

struct SplitItem {
  std::uint64_t bytes = 0;
  std::int64_t storage = -1;  ///< tensors with equal `storage` >= 0 share memory: they count once and stay in one file
};

/// Groups of item indices, one per file, in file order. Items are taken in order: an item above `max_bytes` gets its
/// own file at once, while the open file stays open; an item that does not fit closes the open file. An empty list
/// gives no files.
std::vector<std::vector<std::size_t>> split_hf(std::span<const SplitItem> items, std::uint64_t max_bytes);

/// "model.safetensors" for one file, otherwise "model-00001-of-00002.safetensors" (five digits, or more if needed).
std::string hf_file_name(std::string_view stem, std::size_t index, std::size_t count);

}  // namespace cairn::format
