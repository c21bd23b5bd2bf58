// The newest checkpoint of a root that is whole: loads go back from one that is damaged to the one before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

/// Pure: whether a path is below the directory, or below what it is called while another checkpoint takes its name.
bool is_inside(std::string_view path, const std::filesystem::path& directory);

/// Rank-local and pure: whether an error of a load says that the checkpoint in `directory` is damaged or gone. Everything
/// else is the caller's, or the machine's, or may pass (os/errno_class.hpp).
bool is_of_checkpoint(const Error& error, const std::filesystem::path& directory);

/// What the caller's own code threw: never damage, whatever its kind.
class CallerError : public comm::AgreedError {
 public:
  explicit CallerError(const comm::AgreedError& error) : comm::AgreedError(error) {}
};

struct MakingOptions {
  const Options& options;
  const LoadOptions& load_options;
};
/// Collective: the targets that `make` makes of an open step on this rank. Throws CallerError.
std::vector<Target> make_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                 const MakingOptions& how, std::uint64_t step, const TargetsOf& make);

/// Collective: what `load`, which is collective, reports of the first step of resume_order() that it loads. Those passed
/// over stand in the report and in the log. Throws what `load` throws that is not of a checkpoint, also CallerError; what is
/// wrong with a step whose turn it is and that cannot be read, but is not damaged; kNotFound about the root where it has no
/// step; when every step is damaged the last error, naming all.
Report load_newest(comm::Communicator& communicator, const std::filesystem::path& root,
                   const std::function<Report(std::uint64_t step)>& load);

}  // namespace cairn::checkpoint
