// The public calls of cairn/retention.hpp, for one process.
#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <utility>

#include "base/log.hpp"
#include "cairn/error.hpp"
#include "cairn/retention.hpp"
#include "life/call_log.hpp"
#include "os/clock.hpp"
#include "os/file.hpp"
#include "os/neighbour.hpp"
#include "root/commit.hpp"
#include "root/lease.hpp"
#include "root/pins.hpp"
#include "root/prune.hpp"
#include "root/root.hpp"

namespace cairn {
namespace {

namespace fs = std::filesystem;

fs::path existing_root(const fs::path& given) {
  if (given.empty()) throw Error(ErrorKind::kUsage, "the root is empty; give the path of a directory");
  const fs::path root = os::absolute_path(given);
  std::error_code ignored;
  if (fs::is_directory(root, ignored)) return root;
  if (!os::exists(root)) throw Error(ErrorKind::kNotFound, os::does_not_exist(given), {0, root.native()});
  throw Error(ErrorKind::kNotFound,
              fmt::format("'{}' is not a directory; give the root of a run's checkpoints", os::shown(root)),
              {0, root.native()});
}

/// Marks of loads that may have ended run out within their lease time, or are seen to be renewed.
root::PrunePlan plan_when_loads_are_known(const fs::path& root, const Retention& retention, root::LoadWatch& loads) {
  bool has_said = false;
  for (;;) {
    root::PrunePlan plan = root::plan_prune(root, retention, loads, std::time(nullptr));
    if (!plan.waits_for_load) return plan;
    if (!std::exchange(has_said, true)) {
      base::log_warning(
          fmt::format("waiting at most a minute to see whether loads from '{}' are alive", os::shown(root)));
    }
    os::Clock::of_system().sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

Pruning prune(const fs::path& given, const Retention& retention, const PruneOptions& options) {
  root::check_retention(retention);
  if (retention.prune_before) {
    throw Error(ErrorKind::kUsage,
                "Retention::prune_before is for saves (Options::retention), and prunes nothing here");
  }
  const fs::path root = existing_root(given);
  root::LoadWatch loads;
  if (options.dry_run || retention.empty()) {
    return root::fates_of(root::plan_prune(root, retention, loads, std::time(nullptr)));
  }
  return life::logged(root, format::kLogPrune, {}, [&](life::CallLine& line) {
    root::Lease lease(root, {60, options.wait_seconds, [&] { return root::highest_saved_epoch(root); }});
    root::take_root(lease);
    const root::PrunePlan plan = plan_when_loads_are_known(root, retention, loads);
    Pruning pruning = root::prune(lease, plan, loads);
    for (const std::string& warning : pruning.warnings) base::log_warning(warning);
    for (const StepFate& fate : pruning.steps) {
      if (fate.goes) line.call.pruned.push_back(fate.step);
    }
    line.call.bytes = pruning.freed_bytes;
    if (!pruning.warnings.empty()) line.fail(pruning.warnings.front());
    line.append(&lease);
    return pruning;
  });
}

void pin(const fs::path& root, std::uint64_t step) { root::add_pin(existing_root(root), step); }

void unpin(const fs::path& root, std::uint64_t step) { root::remove_pin(existing_root(root), step); }

}  // namespace cairn
