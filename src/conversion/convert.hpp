// Rewrites a checkpoint of any dialect as a Hugging Face file set, as sharded safetensors or as a staging file,
// streaming: memory is bounded by the budget, whatever the size of the checkpoint.
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
  std::string to = "hf";              ///< the word of a form (interop/dialect.hpp); ignored for a staging file
  std::optional<std::string> layout;  ///< text of a layout (shard/layout.hpp): required for sharded forms
  std::string quant = "keep";  ///< codes of moments: "keep", "off" to decode them, or a codec to code those of section
                               ///< "optimizer"; shards and .h5 never hold codes
  bool decode_by_reciprocals = false;  ///< as in Quantisation, for codes that are decoded
  std::uint64_t processes = 0;         ///< processes that will resume, for forms that need the number; 0: any number
                                       ///< but one
};

struct ConvertReport {
  Report report;
  /// About the layout ("unknown model: ..."), warnings of the source, and its contents that are not kept.
  std::vector<std::string> notes;
};

/// Collective. `destination` must not exist (kUsage). The destination is committed like a save, with cairn.json,
/// cairn.blocks and the files of the source that files_to_carry() names. A destination x.h5 or x.hdf5
/// is one staging file (stage_writer.hpp) instead. The family comes from the source's config.json.
/// The number of ranks that convert is independent of the layout's ranks.
ConvertReport convert(comm::Communicator& communicator, const opening::Parts& source,
                      const std::filesystem::path& destination, const ConvertOptions& options);

// Content of the source, other than tensor bytes, that every conversion keeps.

/// Rank-local. The view for options.quant: codes and scales as they are stored, or moments in F32 and every weight that
/// can be made from others. Shards and staging files always get F32 moments; `notes` says so if it matters. Throws
/// Error(kUsage) for an unknown `quant`, or a codec for shards and staging files, and as decoded_view().
codes::View view_for(const opening::OpenCheckpoint& source, const std::filesystem::path& destination,
                     const ConvertOptions& options, std::vector<std::string>& notes);

/// The catalog of a view; codes and scales that are tensors of the view keep their entries in the files' metadata.
plan::Catalog catalog_of(const codes::View& view);

/// Keys of the source's manifest that this version does not know, without those about its own files.
base::Json unknown_keys(const opening::OpenCheckpoint& source);

/// Adds a line to `notes` if the files of the source disagree about their `__metadata__`.
void note_disputed_metadata(const opening::OpenCheckpoint& source, std::vector<std::string>& notes);

/// The manifest's entries about codes and elided weights, if the view is as stored, and unknown keys.
void describe_codes(const opening::OpenCheckpoint& source, const codes::View& view, format::Manifest& manifest);

/// The files that a conversion takes along: those given to a save or taken by an earlier conversion, and other files
/// that belong to a model by their names (interop/file_names.hpp). Adds a line to `notes` that names the files left
/// behind.
std::vector<std::string> files_to_carry(const opening::OpenCheckpoint& source, std::vector<std::string>& notes);

/// Rank-local: file name -> content. `source` must outlive it.
std::map<std::string, base::ByteStream> streams_of(const opening::OpenCheckpoint& source,
                                                   const std::vector<std::string>& files);

/// Options for reading with half of the budget, or with the minimum for blocks of a common size, since a conversion
/// also writes.
checkpoint::ReadOptions reading_half(const checkpoint::ReadOptions& options);

}  // namespace cairn::conversion
