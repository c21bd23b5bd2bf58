// Rewrites a checkpoint of any dialect as a Hugging Face file set, as sharded safetensors or as a staging file, streaming: memory is bounded
// by the budget, never by the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load.hpp"

namespace cairn::checkpoint {

struct ConvertOptions {
  ReadOptions read;
  Options write;                      ///< engine, max_file_bytes, align_bytes, block_bytes, hints, quantisation
  bool shards = false;                ///< false: Hugging Face files; true: torch DCP's sharded safetensors
  std::optional<std::string> layout;  ///< text of a layout (shard/layout.hpp): required for shards
  std::string quant = "keep";  ///< codes of moments: "keep", "off" to decode them, or a codec to code those of section
                               ///< "optimizer"; shards and .h5 never hold codes
  bool paddle_reciprocals = false;  ///< as in Quantisation, where codes are decoded
};

struct ConvertReport {
  Report report;
  std::vector<std::string> notes;  ///< from the layout ("unknown model: ..."), and warnings of the source
};

/// Collective. `destination` must not exist (kUsage); it is committed as a save is, with cairn.json and cairn.blocks, and
/// the files of the source that files_to_carry (convert_source.hpp) names. A destination called x.h5 or x.hdf5 is one staging file (stage_writer.hpp) instead. The family comes from the source's config.json. The ranks at work have nothing to do with the
/// layout's ranks.
ConvertReport convert(comm::Communicator& communicator, const std::filesystem::path& source,
                      const std::filesystem::path& destination, const ConvertOptions& options);

}  // namespace cairn::checkpoint
