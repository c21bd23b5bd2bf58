#include "checkpoint/load_targets.hpp"

#include <vector>

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

View view_to_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const Options& options) {
  View view;
  comm::agree(communicator, "describe what to load", [&] { view = decoded_view(opened, view_options(options)); });
  return view;
}

Report load_targets(comm::Communicator& communicator, const OpenCheckpoint& opened, std::span<const Target> targets,
                    const View& view, TensorReader& reader, const PhaseClock& whole) {
  DeviceMemory device;
  std::vector<plan::MemoryBox> wanted;
  comm::agree(communicator, "describe what to load", [&] {
    check_shards(targets);
    wanted = wanted_boxes(opened, view, targets, device);
  });
  reader.load(wanted);
  comm::agree(communicator, "bring what was loaded to the device", [&] { device.give_back(); });

  Report report = report_of_load(communicator, opened, reader.engine(), wanted, targets.size());
  report.phases = reader.clock().reduce(communicator);
  report.seconds = whole.slowest_seconds(communicator);
  return report;
}

}  // namespace cairn::checkpoint
