// Catalog to files: names, headers and byte offsets. A pure function of the catalog and options, so that any number of
// ranks writes byte-identical files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "format/stored_checkpoint.hpp"
#include "plan/catalog.hpp"
#include "plan/pieces.hpp"

namespace cairn::plan {

class HfLayout;

/// Which tensor is in which file, of one section.
struct IndexFile {
  std::string name;
  std::string text;
};

struct LayoutOptions {
  std::uint64_t max_file_bytes = 5'000'000'000;  ///< tensor bytes per file (Hugging Face's splitting rule)
  std::uint64_t align_bytes = 4096;              ///< the data section begins on a multiple of this; a power of two >= 8
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  ///< `__metadata__` of every file; codings
                                                                     ///< of its tensors are added
  /// What other systems want of lay_out_hf() that Hugging Face does not.
  struct Habits {
    std::map<std::string, std::string> stems;                            ///< of files, where a section has another one
    std::map<std::string, std::map<std::string, std::string>> metadata;  ///< by section: instead of the above
    bool numbers_single_files = false;   ///< a section of one file has it numbered, 1 of 1
    bool keeps_states_together = false;  ///< of a parameter: tensors with the same name before '/' are in one file
    bool writes_codings = true;          ///< into `__metadata__`
    bool bf16_as_u16 = false;            ///< in headers, whose bytes are the same
    /// Makes the index of a section (by number); without it Hugging Face's, of sections of several files. All ranks' must
    /// give the same, and each runs on one of them.
    std::function<IndexFile(const HfLayout& files, std::size_t section)> index_of = {};
  };
  Habits habits = {};
};

/// One data file to be written: `header` is the 8-byte length, the JSON and its padding (empty where this rank writes
/// no part of it, hf_layout.hpp); tensors follow it end to end.
struct DataFile {
  std::string name;
  std::string section;
  std::string header;
  std::uint64_t size_bytes = 0;
};

/// `stored.files[i]` and `files[i]` are the same file; `stored.tensors[i]` is `catalog.tensors[i]`. Of a tensor that
/// this rank has no use for it has no name and no boxes, and it may end behind the last one that it has use for.
struct FileLayout {
  std::vector<DataFile> files;
  format::StoredCheckpoint stored;
  std::map<std::string, std::string> index_files;  ///< file name -> text of the indexes
};

/// Hugging Face files: `<stem>.safetensors`, or `<stem>-00001-of-0000N.safetensors` and an index, where the stem of
/// section "model" is "model", of "adapter" "adapter_model", of every other section its name. Throws Error(kUsage) for
/// a section that cannot name a file, and what format::encode_header throws.
FileLayout lay_out_hf(const Catalog& catalog, const LayoutOptions& options);

/// torch DCP's sharded safetensors, from what each of `ranks` virtual ranks holds: rank r's boxes in
/// `shard-{r+1:05d}-model-{k:05d}-of-{n:05d}.safetensors`, one box per tensor and file (the k-th box of a tensor goes
/// to file k, max_file_bytes has no say); a box held by several ranks is written once, to the holder with the fewest
/// bytes so far. A rank that stores nothing has no file. Tensors of other sections are stored under the name
/// "<section>.<name>" (`__metadata__` "cairn.sections" takes it apart); an empty box is not stored, but a tensor
/// without elements that somebody holds is, once and whole. All files have section "model". Throws Error(kState) as
/// provide() does when the boxes are not disjoint or leave a hole, Error(kUsage) when two tensors would get one name.
FileLayout lay_out_shards(const Catalog& catalog, std::vector<Piece> held, int ranks, const LayoutOptions& options);

}  // namespace cairn::plan
