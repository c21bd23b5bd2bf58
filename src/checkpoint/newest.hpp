// The newest whole checkpoint of a root: loads go back from a damaged checkpoint to the previous one.
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
#include "root/root.hpp"

namespace cairn::checkpoint {

/// Pure: whether `path` is the directory, is below it, or begins with its path and a dot, as temporary names do.
bool is_inside(std::string_view path, const std::filesystem::path& directory);

/// Rank-local and pure: whether an error of a load shows that the checkpoint in `directory` is damaged or gone.
/// Other errors come from the caller or the machine, or may be temporary (os/errno_class.hpp).
bool is_of_checkpoint(const Error& error, const std::filesystem::path& directory);

/// An error of the caller's own code: never counts as damage, whatever its kind.
class CallerError : public comm::AgreedError {
 public:
  explicit CallerError(const comm::AgreedError& error) : comm::AgreedError(error) {}
};

struct MakingOptions {
  const Options& options;
  const LoadOptions& load_options;
};
/// Collective: the targets that `make` returns for an open step on this rank. Throws CallerError if `make` throws.
std::vector<Target> make_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                 const MakingOptions& how, std::uint64_t step, const TargetsOf& make);

/// Collective: calls `load`, which is collective, for the steps of resume_order() until one loads, and returns its
/// report. Damaged steps are skipped, with a note in the report and in the log. Throws
///   - the error of `load` if it does not show damage (CallerError never does), or if rank 0 sees the missing file
///   - the error of a step that cannot be read but is not damaged, when its turn comes
///   - kNotFound for a root without steps
///   - the last error, with a message that names all steps, if every step is damaged
Report load_newest(comm::Communicator& communicator, const std::filesystem::path& root,
                   const std::function<Report(std::uint64_t step)>& load,
                   root::Counted counted = root::Counted::kWholes);

}  // namespace cairn::checkpoint
