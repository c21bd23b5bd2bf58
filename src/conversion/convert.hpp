// Rewrites a checkpoint of any dialect as the files of a form (interop/form.hpp), or as a staging file. The data is
// streamed: memory is bounded by the budget, whatever the size of the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "cairn/dtype.hpp"
#include "cairn/selection.hpp"
#include "checkpoint/reader.hpp"
#include "codes/view.hpp"
#include "format/manifest.hpp"
#include "interop/notes.hpp"
#include "opening/open.hpp"
#include "plan/catalog.hpp"

namespace cairn::conversion {

struct ConvertOptions {
  checkpoint::ReadOptions read;
  Options write;                      ///< engine, files, limits, quantisation, progress
  std::string to = "hf";              ///< word of a form (interop/form.hpp); for a staging file, one without shards
  std::optional<std::string> layout;  ///< a layout's text (shard/layout.hpp); required for sharded forms
  std::string quant = "keep";  ///< "keep" leaves codes of moments as they are, "off" decodes them, a codec's name codes
                               ///< the moments of section "optimizer"; shards and .h5 never hold codes
  bool decode_by_reciprocals = false;  ///< as in Quantisation, for codes that are decoded
  bool keep_names = false;             ///< names and orders of dimensions stay as they are, for forms that would change
                                       ///< those of another system
  std::optional<DType> dtype;          ///< BF16, F16 or F32 for the floating tensors of section model (cast_weights())
  Selection select;                    ///< tensors to convert (choice.hpp); carried files do not depend on it
  std::uint64_t processes = 0;         ///< number of processes that will resume, for forms that need it; 0: any number
                                       ///< but one
};

struct ConvertReport {
  Report report;
  /// Remarks on the layout ("unknown model: ..."), warnings about the source, and content of it that is not kept.
  interop::Notes notes;
};

/// Collective. Throws kUsage if `destination` exists and options.write does not allow overwriting it. The destination
/// is committed like a save, with cairn.json, cairn.blocks and the source's files that files_to_carry() returns; but a
/// destination x.h5 or x.hdf5 becomes one staging file (stage_writer.hpp). The source's config.json, if it has one,
/// gives the model family. The number of ranks that convert is independent of the layout's ranks. With a selection,
/// throws kNotFound for a pattern that matches nothing, and kUsage if the form needs tensors that are left out. With a
/// dtype, throws as cast_weights(), and kUsage if source or options omit weights that loads make from others.
ConvertReport convert(comm::Communicator& communicator, const opening::Parts& source,
                      const std::filesystem::path& destination, const ConvertOptions& options);

// Content of the source, other than tensor bytes, that every conversion keeps.

/// Rank-local. The view for options.quant: codes and scales as they are stored, or moments in F32 and every weight that
/// can be made from others. Shards and staging files always get F32 moments; `notes` gets a line if this matters.
/// `config`: the content of config.json, or "". Throws Error(kUsage) for an unknown `quant`, or a codec with shards or
/// staging files, or for decode_by_reciprocals without effect; and like decoded_view().
codes::View view_for(const opening::OpenCheckpoint& source, const std::string& config,
                     const std::filesystem::path& destination, const ConvertOptions& options, interop::Notes& notes);

/// Rank-local: the tensors of `view` that options.select selects, by number. Adds to `notes` how many are left out.
/// `sources`: catalog_of(view). Throws as chosen(), and Error(kUsage) if the source omits weights and the view is as
/// stored, because loads make these weights from others.
std::vector<std::uint32_t> numbers_to_convert(const opening::OpenCheckpoint& source, const codes::View& view,
                                              const plan::Catalog& sources, const ConvertOptions& options,
                                              interop::Notes& notes);

/// Rank-local: cast_weights() as options.dtype says, if it is set. Returns whether a dtype changes.
bool cast_as_asked(const opening::OpenCheckpoint& source, plan::Catalog& targets, codes::View& view,
                   const std::string& config, const ConvertOptions& options, interop::Notes& notes);

/// Collective: adds to `notes` how many values became infinite. `overflows`: this rank's number (View::overflows).
void note_overflows(comm::Communicator& communicator, std::uint64_t overflows, const ConvertOptions& options,
                    interop::Notes& notes);

/// The catalog of a view. In a view as stored, codes keep their codings, which are entries in the files' metadata.
plan::Catalog catalog_of(const codes::View& view);

/// The `extra` keys of the source's manifest, except those about the source's own files: "rebuilt", engine and hints.
base::Json unknown_keys(const opening::OpenCheckpoint& source);

/// Adds notes about content of the source that no conversion keeps, and its warnings.
void note_omissions(const opening::OpenCheckpoint& source, interop::Notes& notes);

/// Adds a line to `notes` if the source's files disagree about their `__metadata__`.
void note_disputed_metadata(const opening::OpenCheckpoint& source, interop::Notes& notes);

/// Sets the manifest's entries about codes and elided weights, if the view is as stored, and copies unknown keys.
void describe_codes(const opening::OpenCheckpoint& source, const codes::View& view, format::Manifest& manifest);

/// The files that a conversion carries along: those that a save was given or an earlier conversion carried, those whose
/// names mark them as part of a model (interop/file_names.hpp), and those that the source's dialect carries. Adds to
/// `notes` a line that names the files left behind, if any.
std::vector<std::string> files_to_carry(const opening::OpenCheckpoint& source, std::vector<std::string>& notes);

/// Rank-local: file name -> content. `source` must outlive the streams.
std::map<std::string, base::ByteStream> streams_of(const opening::OpenCheckpoint& source,
                                                   const std::vector<std::string>& files);

/// Options for reading with half of the budget, or with the minimum for blocks of a common size, since a conversion
/// also writes.
checkpoint::ReadOptions reading_half(const checkpoint::ReadOptions& options);

}  // namespace cairn::conversion
