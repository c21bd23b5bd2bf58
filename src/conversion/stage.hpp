// Staging: an open checkpoint, or a state in memory, as one HDF5 file.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "checkpoint/call.hpp"
#include "conversion/convert.hpp"
#include "opening/open.hpp"

namespace cairn::conversion {

/// Collective. Streams `source` into the staging file `destination`, with the memory budget of options.write. Throws
/// kUsage if options.write does not allow overwriting an existing file, or if the options ask for shards. `config`: for
/// cast_weights().
ConvertReport convert_to_stage(comm::Communicator& communicator, const opening::OpenCheckpoint& source,
                               const std::filesystem::path& destination, const std::string& config,
                               const ConvertOptions& options, checkpoint::Call& call);

/// Collective: the function behind cairn::stage().
Report stage_state(comm::Communicator& communicator, const std::filesystem::path& file, std::span<const Source> state,
                   const Options& options, const std::map<std::string, std::string>& metadata);

}  // namespace cairn::conversion
