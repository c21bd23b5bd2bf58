// The public functions of cairn/staging.hpp.
#include "cairn/staging.hpp"

#include <memory>

#include "checkpoint/given_alike.hpp"
#include "checkpoint/load_targets.hpp"
#include "checkpoint/watched_call.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "directory/open.hpp"
#include "export/stage.hpp"

namespace cairn {
Report stage(MPI_Comm given, const std::filesystem::path& file, std::span<const Source> state, const Options& options,
             const std::map<std::string, std::string>& metadata) {
  const auto communicator = checkpoint::watched_communicator(given, options);
  Report report;
  checkpoint::run_call(*communicator, "stage", [&] {
    comm::agree(*communicator, "look at the launcher", comm::refuse_lonely_process);
    checkpoint::agree_on_options(*communicator, options, file);
    report = checkpoint::stage_state(*communicator, file, state, options, metadata);
  });
  return report;
}

Report load_from(MPI_Comm given, const std::filesystem::path& path, std::span<const Target> targets,
                 const Options& options) {
  const checkpoint::PhaseClock whole;
  const auto communicator = checkpoint::watched_communicator(given, options);
  Report report;
  checkpoint::run_call(*communicator, "open", [&] {
    checkpoint::agree_on_options(*communicator, options, path);
    report = checkpoint::with_open(
        *communicator, path, checkpoint::links_of(options.follow_links), [&](const checkpoint::OpenCheckpoint& opened) {
          return checkpoint::load_targets(*communicator, opened, targets, options, nullptr, whole);
        });
    report.directory = path;
  });
  return report;
}

}  // namespace cairn
