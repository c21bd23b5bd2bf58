// The meaning of checkpoint file names: a data file's set, the set that an index lists, and a file's kind.
//
// A set is the files that share a stem and, with it, a section: "model-00001-of-00002.safetensors" and
// "model.safetensors" both belong to the set "model", which "model.safetensors.index.json" lists. Only names are
// examined, never the files' content. The rules are in README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::interop {

inline constexpr std::string_view kDataSuffix = ".safetensors";

/// "optimizer.tp00.safetensors_shard_0002": one of the pieces into which a rank's file was cut.
struct FilePiece {
  std::string_view file;     ///< without "_shard_0002"
  std::uint32_t number = 0;  ///< 0: the file is whole
};
FilePiece parse_file_piece(std::string_view file);

/// Whether the name is that of a safetensors file, or of a piece of one.
bool is_data_name(std::string_view file);

/// The kind of a file for a system (Dialect::kind_of).
enum class FileKind {
  kOther,
  kIndex,   ///< a JSON file that lists tensors of files that are not safetensors
  kPickle,  ///< not safetensors, but its tensors are read
  kPart,    ///< safetensors with one rank's parts of tensors
  kMark,    ///< tells that a rank has written its part of an asynchronous save; not carried
};

/// The kind of the file for the first system for which it is not kOther; kOther if there is none.
FileKind file_kind(std::string_view file);

inline bool is_pickle_name(std::string_view file) { return file_kind(file) == FileKind::kPickle; }

/// "model-00002-of-00004.safetensors" -> {"model", true, 2, 4}; "model.fp16.safetensors" -> {"model.fp16", false}.
/// Numbers may have any padding, and may come behind ".safetensors" ("model.safetensors-1-of-2").
struct DataName {
  std::string set;
  bool numbered = false;
  std::uint64_t number = 0;  ///< as written; not checked against count
  std::uint64_t count = 0;
  std::size_t number_at = 0;  ///< place of the number's digits in the file name
  std::size_t number_digits = 0;
};

/// Accepts any name, with or without ".safetensors". In a name without numbers, all before this suffix is the set.
DataName parse_data_name(std::string_view file);

/// The name of another file of the set: `file`, a numbered name, with that number, padded to `digits` digits.
std::string with_number(std::string_view file, std::uint64_t number, std::size_t digits);

/// Whether the name of a data file says that it holds one rank's slices: a word "rank", "tp", "pp", "mp" or "ep" with
/// a number, as in "model-rank-0-part-0", "model-TP-000" and "model0-mp2". The files of adapters are called after the
/// rank of their matrices, too.
bool names_a_rank(std::string_view file);

/// Whether the name of a data file says that it is one of several, but not as parse_data_name() reads it:
/// "model_00001_of_00002", "model.part1of3", "model-00001-of-00002-x".
bool looks_numbered(std::string_view file);

/// Whether the entry of a directory is never a file of a checkpoint: a macOS companion, such as "._model.safetensors".
inline bool is_companion(std::string_view entry) { return entry.starts_with("._"); }

/// Whether the entry is a hidden data file, such as ".model.safetensors", which other programs' loaders pass over. A
/// section of a checkpoint of Cairn may have such a name.
inline bool is_hidden_data(std::string_view entry) { return entry.starts_with('.') && is_data_name(entry); }

/// The set that an index file lists, or nothing if the name is not an index name. Variants are written in two ways:
/// "model.safetensors.index.fp16.json" (transformers) and "model.fp16.safetensors.index.json" (huggingface_hub). Both
/// list the set "model.fp16".
std::optional<std::string> set_of_index(std::string_view file);

/// The section of a set with a known name: "model", "optimizer" and "master_weights" are sections themselves, the sets
/// "adapter_model" and "peft_model" are section "adapter". Nothing for any other name.
std::optional<std::string> known_section(std::string_view set);

/// Whether a small file belongs to a model, by its name: configurations, tokenizers, code, licences and cards do.
/// Pickles, weights of other formats and their indexes, and files of a training run do not. README.md has the list.
bool belongs_to_model(std::string_view file);

/// Whether a file or folder says nothing about the model that it lies next to: what version control, downloads, editors
/// and desktops leave, such as ".gitattributes" and ".cache". Files of that kind are left behind without a word.
bool is_bystander(std::string_view entry);

/// The data file of which this one is a copy by its name, as browsers and desktops call a second one:
/// "model.safetensors" for "model (1).safetensors", "model copy.safetensors" and "model - Copy (2).safetensors". Empty
/// for other names.
std::string original_of(std::string_view file);

/// The size up to which the file is read as text; 0 for a file that is never read as text, such as a tokenizer.json:
/// a stranger's may have any size.
std::uint64_t most_text_bytes(std::string_view file);

/// Whether the file is one that Cairn itself adds to a checkpoint, neither data nor carried.
bool is_cairn_file(std::string_view file);

}  // namespace cairn::interop
