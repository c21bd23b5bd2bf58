// Lays out a catalog in files: names, headers and byte offsets. lay_out_hf() sees only catalog and options, so any
// number of ranks writes byte-identical files; lay_out_shards() also depends on the ranks' boxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/catalog.hpp"
#include "plan/pieces.hpp"

namespace cairn::plan {

class HfLayout;

/// The index of a section, which names the file of each tensor.
struct IndexFile {
  std::string name;
  std::string text;
};

struct LayoutOptions {
  std::uint64_t max_file_bytes = 5'000'000'000;  ///< tensor bytes per file (Hugging Face's splitting rule)
  std::uint64_t align_bytes = 4096;              ///< the data section begins on a multiple of this; a power of two >= 8
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  ///< `__metadata__` of every file; codings
                                                                     ///< of the file's tensors are added
  std::uint64_t max_header_bytes = format::kMaxHeaderBytes;          ///< a file whose header could be larger is split

  /// Whether a tensor goes to files that have only such tensors, before the other files of its section; empty: none
  /// does. Must be the same function on all ranks.
  std::function<bool(const PackedCatalog::Cursor& tensor)> is_apart = {};

  // Deviations from Hugging Face's files that other systems need.

  std::map<std::string, std::string> stems = {};  ///< by section: stem of the file names, if not the usual one
  std::map<std::string, std::map<std::string, std::string>> metadata_of = {};  ///< by section: instead of `metadata`
  bool numbers_single_files = false;   ///< the only file of a section is numbered, 1 of 1
  bool keeps_states_together = false;  ///< consecutive tensors of one parameter (equal before '/') share a file
  bool writes_codings = true;          ///< into `__metadata__`
  bool bf16_as_u16 = false;            ///< in headers; the data bytes do not change
  /// Makes the index of a section, by number; if empty, sections of several files have Hugging Face's index. Each index
  /// is made on only one rank, so the result must not depend on the rank.
  std::function<IndexFile(const HfLayout& files, std::size_t section)> index_of = {};
};

/// A data file to be written. `header` is the 8-byte length, the JSON and its padding; it is empty if this rank writes
/// no part of it (hf_layout.hpp). The tensors follow the header end to end.
struct DataFile {
  std::string name;
  std::string section;
  std::string header;
  std::uint64_t size_bytes = 0;
};

/// `stored.files[i]` and `files[i]` are the same file; `stored.tensors[i]` is `catalog.tensors[i]`. The list of tensors
/// may be empty, and a tensor whose file HfLayout::add_file() did not add has neither name nor boxes.
struct FileLayout {
  std::vector<DataFile> files;
  format::StoredCheckpoint stored;
  std::map<std::string, std::string> index_files;  ///< file name -> content, for each index
};

/// Hugging Face files: `<stem>.safetensors`, or `<stem>-00001-of-0000N.safetensors` and an index. The usual stem is the
/// name of the section, or "adapter_model" for section "adapter". Throws as the constructor of HfLayout and
/// HfLayout::header_of() do.
FileLayout lay_out_hf(const Catalog& catalog, const LayoutOptions& options);

/// torch DCP's sharded safetensors, from the boxes that each of `ranks` virtual ranks holds:
///
/// - Rank r's boxes go to `shard-{r+1:05d}-model-{k:05d}-of-{n:05d}.safetensors`, one box per tensor and file:
///   the rank's k-th box of a tensor goes to its file k. Only align_bytes and metadata of the options are
///   used. A rank that stores nothing has no file.
/// - A box held by several ranks is stored once, by the holder with the fewest bytes so far.
/// - Tensors of sections other than "model" are stored under the name "<section>.<name>"; `__metadata__`
///   "cairn.sections" maps this name to section and name. All files have section "model".
/// - An empty box is not stored, but a tensor without elements is, once and whole.
///
/// Throws Error(kState) as provide() does, and Error(kUsage) if two tensors would get the same name.
FileLayout lay_out_shards(const Catalog& catalog, std::vector<Piece> held, int ranks, const LayoutOptions& options);

}  // namespace cairn::plan
