// The public functions of cairn/staging.hpp.
#include "cairn/staging.hpp"

#include <memory>

#include "base/log.hpp"
#include "checkpoint/decoding_reader.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/device_memory.hpp"
#include "checkpoint/open.hpp"
#include "checkpoint/reports.hpp"
#include "checkpoint/stage.hpp"
#include "checkpoint/targets.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/fault.hpp"

namespace cairn {
namespace {

std::unique_ptr<comm::Communicator> communicator_on(MPI_Comm given) {
  comm::prefer_romio();
  auto communicator = comm::duplicate_mpi(given);
  os::set_fault_rank(communicator->rank());
  base::set_log_rank(communicator->rank(), communicator->size());
  return communicator;
}

}  // namespace

Report stage(MPI_Comm given, const std::filesystem::path& file, std::span<const Source> state, const Options& options,
             const std::map<std::string, std::string>& metadata) {
  const auto communicator = communicator_on(given);
  return checkpoint::stage_state(*communicator, file, state, options, metadata);
}

Report load_from(MPI_Comm given, const std::filesystem::path& path, std::span<const Target> targets,
                 const Options& options) {
  checkpoint::PhaseClock whole;
  const auto communicator = communicator_on(given);
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

  Report report = checkpoint::report_of_load(*communicator, opened, reader->engine(), wanted, targets.size());
  report.directory = path;
  checkpoint::add_times(*communicator, reader->clock(), whole, report);
  return report;
}

}  // namespace cairn
