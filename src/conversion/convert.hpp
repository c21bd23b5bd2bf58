// Rewrites a checkpoint of any dialect as a Hugging Face file set, as sharded safetensors or as a staging file,
// streaming: memory is bounded by the budget, never by the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "checkpoint/reader.hpp"
#include "codes/view.hpp"
#include "format/manifest.hpp"
#include "opening/open.hpp"
#include "plan/catalog.hpp"

namespace cairn::conversion {

struct ConvertOptions {
  checkpoint::ReadOptions read;
  Options write;                      ///< engine, files, limits, quantisation, progress
  std::string to = "hf";              ///< the word of a form (interop/dialect.hpp); of no meaning for a staging file
  std::optional<std::string> layout;  ///< text of a layout (shard/layout.hpp): required for what is sharded
  std::string quant = "keep";  ///< codes of moments: "keep", "off" to decode them, or a codec to code those of section
                               ///< "optimizer"; shards and .h5 never hold codes
  bool decode_by_reciprocals = false;  ///< as in Quantisation, where codes are decoded
  std::uint64_t processes = 0;         ///< that are to resume, for forms that ask; 0: any number but one
};

struct ConvertReport {
  Report report;
  /// From the layout ("unknown model: ..."), warnings of the source, and what is not taken over of it.
  std::vector<std::string> notes;
};

/// Collective. `destination` must not exist (kUsage); it is committed as a save is, with cairn.json and cairn.blocks,
/// and the files of the source that files_to_carry names. A destination called x.h5 or x.hdf5 is one staging file
/// (stage_writer.hpp) instead. The family comes from the source's config.json. The ranks at work have nothing to do
/// with the layout's ranks.
ConvertReport convert(comm::Communicator& communicator, const opening::Parts& source,
                      const std::filesystem::path& destination, const ConvertOptions& options);

// What a conversion takes from its source besides the tensors' bytes, whatever it is converted to.

/// Rank-local. Codes and scales as they are stored, or moments in F32 and every weight that can be made: what
/// options.quant says, and always the latter for shards and staging files, which adds to `notes` when it matters.
/// Throws Error(kUsage) for a `quant` that is unknown, or one of codes for shards and staging files, and as
/// decoded_view().
codes::View view_for(const opening::OpenCheckpoint& source, const std::filesystem::path& destination,
                     const ConvertOptions& options, std::vector<std::string>& notes);

/// Codes and scales that the view has as tensors come with the notes that the files carry of them.
plan::Catalog catalog_of(const codes::View& view);

/// Keys of the source's manifest that this version does not know. Those that a save writes beside are of its own files.
base::Json unknown_keys(const opening::OpenCheckpoint& source);

/// `notes` gets a line where the files of the source disagree about their `__metadata__`.
void note_disputed_metadata(const opening::OpenCheckpoint& source, std::vector<std::string>& notes);

/// What the manifest says of codes and of weights that are elided, where the view is as stored; and keys that are not
/// known.
void describe_codes(const opening::OpenCheckpoint& source, const codes::View& view, format::Manifest& manifest);

/// Which files a conversion takes along: those that a save was given, or an earlier conversion took, and of the others
/// those that belong to a model by their names (interop/file_names.hpp). `notes` gets a line that names what is left
/// behind.
std::vector<std::string> files_to_carry(const opening::OpenCheckpoint& source, std::vector<std::string>& notes);

/// Rank-local: file name -> content. `source` must outlive it.
std::map<std::string, base::ByteStream> streams_of(const opening::OpenCheckpoint& source,
                                                   const std::vector<std::string>& files);

/// A conversion reads and writes: half of the budget is for reading, or the least that blocks of a common size need.
checkpoint::ReadOptions reading_half(const checkpoint::ReadOptions& options);

}  // namespace cairn::conversion
