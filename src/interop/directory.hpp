// Recognises what a checkpoint directory is, and describes its tensors: one entry for all dialects.
//
// Pure: the caller lists the directory, reads the headers of its safetensors files and the small JSON texts, and hands
// them in (directory/open.cpp does).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.hpp"
#include "format/hf_index.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::interop {

/// What was found in a directory. Names are relative to it.
struct Directory {
  std::string path;                                              ///< for messages
  std::map<std::string, format::SafetensorsHeader> safetensors;  ///< every *.safetensors file at the top level
  std::map<std::string, std::string> json;         ///< name -> text of *.json up to 1 GiB: indexes, config
  std::map<std::string, format::HfIndex> indexes;  ///< those that were read already, and are not in `json`
  std::map<std::string, std::uint64_t> others;     ///< every other file -> size
  std::vector<std::string> folders;  ///< sub-directories: neither read nor carried along, named in a warning
  bool alone = false;                ///< the user pointed at one file: the others of its numbered set are not missed
};

/// kHdf5 is a staging file, which is not a directory: recognise() never says so.
enum class Dialect { kHuggingFace, kDcpSafetensors, kPaddle, kHdf5 };

/// "Hugging Face", "torch DCP safetensors", "PaddlePaddle", "HDF5 staging file".
const char* name_of(Dialect dialect);

/// Both moments of a parameter, which a codec (src/quant) stores as codes and scales.
struct QuantisedMoments : format::Coding {
  std::string section;
  std::vector<std::string> parts;  ///< the stored tensors' names, in the order of the codec's parts()

  friend bool operator==(const QuantisedMoments&, const QuantisedMoments&) = default;
};

struct Recognised {
  Dialect dialect = Dialect::kHuggingFace;
  std::vector<format::StoredFile> files;  ///< by name
  /// By (section, name), each with at least one box. They lead into what follows here.
  std::vector<format::PlacedTensor> tensors;
  std::vector<std::shared_ptr<const format::HeaderStore>> stores;  ///< of the files
  std::set<std::string> sections;
  std::vector<format::StoredTensor> sharded;  ///< of torch DCP: those in parts
  std::vector<QuantisedMoments> quantised;    ///< by name; their parts are among `tensors`, of right dtype and shape
  /// `__metadata__` of the data files together, without what says how a file holds its tensors (codings, boxes,
  /// dialect). Where they disagree about a key, the first file by name that has it decides, and the key is in
  /// `disputed_metadata`.
  std::map<std::string, std::string> metadata;
  std::vector<std::string> disputed_metadata;
  std::vector<std::string> carried;   ///< files that are neither data nor index nor Cairn's own: to be carried along
  std::vector<std::string> warnings;  ///< one line each: total_size differs, unreferenced data file ...
};

/// Throws Error(kFormat or kNotFound), one line naming file and tensor, for every inconsistency between indexes and
/// files: a tensor in the index but not in its file, a name in two files, a missing file, a file that the index does
/// not know (stale shards of an older save: named), boxes of a sharded tensor that overlap or leave a hole,
/// contradicting dtypes. A directory without any safetensors file is Error(kNotFound).
/// What is wrong with the parts of quantised moments is an error as well: an unknown codec, a part that is missing, of
/// the wrong dtype or shape, or too many.
Recognised recognise(const Directory& directory);

}  // namespace cairn::interop
