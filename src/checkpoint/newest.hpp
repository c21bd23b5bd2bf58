// The newest checkpoint of a root that is whole: loads go back from one that is damaged to the one before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Rank-local and pure: whether an error of a load says that the checkpoint in `directory` is damaged or gone. Everything
/// else is the caller's, or the machine's, or may pass (os/errno_class.hpp).
bool is_of_checkpoint(const Error& error, const std::filesystem::path& directory);

/// Collective: what `load`, which is collective, reports of the first step of resume_order() that it loads. Those passed
/// over stand in the report and in the log. Throws what `load` throws that is not of a checkpoint; what is wrong with a
/// step whose turn it is and that cannot be read, but is not damaged; kNotFound about the root where it has no step; when
/// every step is damaged the last error, naming all.
Report load_newest(comm::Communicator& communicator, const std::filesystem::path& root,
                   const std::function<Report(std::uint64_t step)>& load);

}  // namespace cairn::checkpoint
