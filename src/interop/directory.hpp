// Recognises the format of a checkpoint directory and describes its tensors: one entry point for all dialects.
//
// Pure: the caller lists the directory, reads the headers of its safetensors files and the small JSON files, and passes
// them in (opening/open.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "format/hf_index.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::interop {

/// An entry of a folder below a checkpoint directory.
struct FolderEntry {
  std::string name;  ///< relative to the checkpoint directory, '/'-separated
  std::uint64_t size_bytes = 0;
  bool is_folder = false;
};

/// Access to a directory, which the caller provides for dialects. Paths are relative and '/'-separated;
/// both functions throw if reading fails, and for a link out of the directory unless the user allows such links.
struct FileAccess {
  std::function<std::vector<FolderEntry>(const std::string& folder)> list;  ///< regular files and folders, by name
  std::function<base::ByteSource(const std::string& file)> open;
};

/// The content of a directory. Names are relative to it.
struct Directory {
  std::string path;                            ///< for messages
  std::vector<std::string> parts;              ///< all directories that hold a part of the files, `path` first
  std::map<std::string, std::string> part_of;  ///< file -> directory, for files not in `path`
  std::map<std::string, format::SafetensorsHeader> safetensors;  ///< every file of the top level with is_data_name()
  std::map<std::string, std::string> json;                       ///< name -> content, for files up to most_text_bytes()
                                                                 ///< (file_names.hpp)
  std::map<std::string, format::HfIndex> indexes;  ///< indexes that were parsed already, and are not in `json`
  std::span<const format::ManifestFile> manifest;  ///< the manifest's data files; empty: none, or no manifest
  std::string form;  ///< word of the Form in the manifest, which determines the dialect; empty: unknown
  std::map<std::string, std::uint64_t> others;  ///< every other file -> size
  std::vector<std::string> folders;  ///< sub-directories: not carried; a warning names those that no dialect reads
  bool trusts_index = false;         ///< the user says that indexes are right: all that they do not list is ignored
  bool alone = false;                ///< the user named a single file: other files of its numbered set are not required
  FileAccess access;                 ///< for dialects whose files are not safetensors; empty: they find no files
  std::set<std::string> outlined;    ///< pickles whose structure access.open() provides, without the tensors' bytes

  /// Whether Cairn wrote the directory.
  [[nodiscard]] bool is_of_cairn() const { return !manifest.empty() || !form.empty(); }
};

/// Adds the manifest's facts about the files; the manifest must outlive the directory.
void take_manifest(Directory& directory, const format::Manifest& manifest);

/// Facts about a checkpoint other than its tensors.
struct About {
  std::string dialect;       ///< the dialect's name: "Hugging Face"
  std::string version;       ///< version of the writer, if the files have it: "transformers 4.57.1"
  std::string parallel;      ///< the numbers of ranks that wrote the checkpoint: "tp=2,pp=2"
  std::string quantisation;  ///< in the terms of the dialect's system: "O1: 8-bit moments"
  std::optional<std::uint64_t> step;
  std::map<std::string, std::string> values;  ///< state other than tensors, as JSON: "scheduler" -> {"last_epoch": 3}
  std::vector<std::string> sources;           ///< files whose content is in `values`
  std::vector<std::string> left;              ///< state that is left out, with the reason: one line each

  friend bool operator==(const About&, const About&) = default;
};

/// A box of both moments of a parameter. It has separate scales, since it was in a slice that was coded separately.
struct ScaledBox {
  Box box;
  std::uint64_t scales = 0;  ///< index of the box's scales in the first dimension of the parts that are scales

  friend bool operator==(const ScaledBox&, const ScaledBox&) = default;
};

/// Both moments of a parameter, which a codec (src/quant) stores as codes and scales.
struct QuantisedMoments : format::Coding {
  std::string section;
  std::vector<std::string> parts;  ///< the stored tensors' names, in the order of the codec's parts()
  /// Disjoint boxes that together make up the moments; empty: scales apply to the whole tensor. With boxes, the codes
  /// have the shape of the moments, and scales have one more dimension: the codec's scales of each slice.
  /// Only for codecs whose codes can be cut anywhere, with scales of whole columns or whole tensors.
  std::vector<ScaledBox> boxes = {};
  bool one_scale_a_box = false;  ///< each slice was coded as a tensor of 1 dimension

  friend bool operator==(const QuantisedMoments&, const QuantisedMoments&) = default;
};

/// The known facts about a checkpoint other than its files and tensors.
struct Description {
  About about;
  /// The combined `__metadata__` of the data files, except keys that describe how a file holds its tensors (codings,
  /// boxes, dialect). If files disagree about a key, the first file by name that has it decides,
  /// and the key is in `disputed_metadata`.
  std::map<std::string, std::string> metadata;
  std::vector<std::string> disputed_metadata;
  std::vector<std::string> carried;   ///< files to carry: all but data, safetensors indexes, signals and Cairn's files
  std::vector<std::string> warnings;  ///< one line each: total_size differs, unreferenced data file ...
};

struct Recognised : Description {
  std::vector<format::StoredFile> files;  ///< safetensors by name, then others as Reading::add_file() numbered them
  /// Tensors by (section, name), those in parts with at least one box. They refer to the members below.
  std::vector<format::PlacedTensor> tensors;
  std::vector<std::shared_ptr<const format::HeaderStore>> stores;  ///< own names and shapes of tensors
  std::set<std::string> sections;
  std::deque<format::StoredTensor> made;    ///< tensors not as in their header: in parts, with another name or section
  std::vector<QuantisedMoments> quantised;  ///< by section and name; parts are in `tensors`, of correct dtype and shape

  /// Adds a tensor that differs from its header.
  void add(format::StoredTensor tensor);
};

/// Throws Error(kFormat or kNotFound), one line naming file and tensor, for an inconsistency between indexes
/// and files: a tensor in the index but not in its file, a name in two files, a missing file, a file that the index
/// does not list (a leftover of another save), boxes of a sharded tensor that overlap or leave a hole, or
/// contradicting dtypes. A directory that no dialect recognises is Error(kNotFound). Inconsistent parts of quantised
/// moments are also errors: an unknown codec, or a part that is missing, of the wrong dtype or shape, or superfluous.
Recognised recognise(const Directory& directory);

}  // namespace cairn::interop
