#include "checkpoint/load_targets.hpp"

#include <vector>

#include "checkpoint/decoding_reader.hpp"
#include "checkpoint/reports.hpp"
#include "checkpoint/targets.hpp"
#include "codes/device_memory.hpp"
#include "comm/agree.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {

ReadOptions read_options(const Options& options) {
  return {options.engine, options.memory_budget_bytes, options.hints, options.aggregators_per_node,
          links_of(options.follow_links)};
}

Report load_targets(comm::Communicator& communicator, const OpenCheckpoint& opened, std::span<const Target> targets,
                    const Options& options, io::WindowStore* windows, const PhaseClock& whole) {
  View view;
  DeviceMemory device;
  std::vector<WantedBox> wanted;
  comm::agree(communicator, "describe what to load", [&] {
    check_shards(targets);
    view = decoded_view(opened, view_options(options));
    wanted = wanted_boxes(opened, view, targets, device);
  });
  const auto reader = make_view_reader(communicator, opened, view, read_options(options), windows);
  reader->load(wanted);
  comm::agree(communicator, "bring what was loaded to the device", [&] { device.give_back(); });

  Report report = report_of_load(communicator, opened, reader->engine(), wanted, targets.size());
  add_times(communicator, reader->clock(), whole, report);
  return report;
}

}  // namespace cairn::checkpoint
