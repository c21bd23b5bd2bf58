// The public functions of cairn/staging.hpp.
#include "cairn/staging.hpp"

#include <memory>

#include "checkpoint/decoding_reader.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/device_memory.hpp"
#include "checkpoint/given_alike.hpp"
#include "checkpoint/open.hpp"
#include "checkpoint/reports.hpp"
#include "checkpoint/stage.hpp"
#include "checkpoint/targets.hpp"
#include "checkpoint/watched_call.hpp"
#include "comm/agree.hpp"

namespace cairn {
Report stage(MPI_Comm given, const std::filesystem::path& file, std::span<const Source> state, const Options& options,
             const std::map<std::string, std::string>& metadata) {
  const auto communicator = checkpoint::watched_communicator(given, options);
  Report report;
  checkpoint::run_call(*communicator, "stage", [&] {
    checkpoint::agree_on_options(*communicator, options, file);
    report = checkpoint::stage_state(*communicator, file, state, options, metadata);
  });
  return report;
}

Report load_from(MPI_Comm given, const std::filesystem::path& path, std::span<const Target> targets,
                 const Options& options) {
  checkpoint::PhaseClock whole;
  const auto communicator = checkpoint::watched_communicator(given, options);
  Report report;
  checkpoint::run_call(*communicator, "open", [&] {
    checkpoint::agree_on_options(*communicator, options, path);
    const checkpoint::OpenCheckpoint opened = checkpoint::open_checkpoint(*communicator, path);
    checkpoint::View view;
    checkpoint::DeviceMemory device;
    std::vector<checkpoint::WantedBox> wanted;
    comm::agree(*communicator, "describe what to load", [&] {
      checkpoint::check_shards(targets);
      view = checkpoint::decoded_view(opened, checkpoint::view_options(options));
      wanted = checkpoint::wanted_boxes(opened, view, targets, device);
    });
    const auto reader = checkpoint::make_view_reader(
        *communicator, opened, view,
        {options.engine, options.memory_budget_bytes, options.hints, options.aggregators_per_node});
    reader->load(wanted);
    comm::agree(*communicator, "bring what was loaded to the device", [&] { device.give_back(); });

    report = checkpoint::report_of_load(*communicator, opened, reader->engine(), wanted, targets.size());
    report.directory = path;
    checkpoint::add_times(*communicator, reader->clock(), whole, report);
  });
  return report;
}

}  // namespace cairn
