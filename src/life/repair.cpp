// The public call of cairn/repair.hpp: what to repair, and the files of a root.
#include "cairn/repair.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "cairn/error.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "life/call_log.hpp"
#include "life/repair_checkpoint.hpp"
#include "os/errno_class.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "root/commit.hpp"
#include "root/lease.hpp"
#include "root/lease_folder.hpp"
#include "root/root.hpp"
#include "root/root_state.hpp"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using life::CallLine;
using os::shown;
using root::RootEntry;
using root::RootName;

bool is_checkpoint(const fs::path& directory) {
  return os::exists(directory / format::kManifestFile) || os::exists(directory / format::kBlocksFile);
}

/// The directories called checkpoint-<step> in a root, without links.
std::vector<fs::path> checkpoints_in(const fs::path& root) {
  std::vector<fs::path> directories;
  for (const auto& entry : os::list_directory(root)) {
    const auto name = root::parse_root_name(entry.name);
    if (!name || name->kind != RootName::Kind::kCheckpoint || !entry.is_directory || entry.is_link) continue;
    directories.push_back(root / entry.name);
  }
  return directories;
}

/// Throws unless the path is a directory.
void check_directory(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  if (!os::is_name_taken(path)) throw root::does_not_exist(path);
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}' is not a directory; give a checkpoint or a root of checkpoints", shown(path)),
              {0, path.native()});
}

/// The object of a repair.
struct Place {
  std::optional<fs::path> root;       ///< nothing for a checkpoint outside a root
  std::optional<std::uint64_t> step;  ///< of a checkpoint in a root
  fs::path path;                      ///< of a checkpoint, or the root itself
  [[nodiscard]] bool is_root() const { return root == path; }
};

Place place_of(const fs::path& given) {
  if (given.empty()) throw Error(ErrorKind::kUsage, "the path is empty; give a checkpoint or a root of checkpoints");
  fs::path path = os::absolute_path(given);
  if (!path.has_filename()) path = path.parent_path();
  check_directory(path);
  const auto name = root::parse_root_name(path.filename().native());
  if (name && name->kind != RootName::Kind::kCheckpoint) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is not a checkpoint: it is unfinished or was replaced; give its root", shown(path)),
                {0, path.native()});
  }
  Place place{std::nullopt, std::nullopt, path};
  if (is_checkpoint(path)) {
    if (!name || !os::exists(path.parent_path() / root::kLeaseDirectory)) return place;
    place.root = path.parent_path();
    place.step = name->step;
    return place;
  }
  if (!os::exists(path / root::kLeaseDirectory) && !std::ranges::any_of(checkpoints_in(path), is_checkpoint)) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("'{}' is neither a checkpoint of Cairn's nor a root of checkpoints", shown(path)),
                {0, path.native()});
  }
  place.root = path;
  return place;
}

/// The checkpoints that --from names; those of a root have names, of which the same step comes first.
class From {
 public:
  From(const std::vector<fs::path>& given, const Place& place) {
    for (const fs::path& one : given) {
      const fs::path path = os::absolute_path(one);
      check_directory(path);
      std::error_code failed;
      if (fs::equivalent(path, place.path, failed) && !failed) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("'{}' is what is to be repaired; give another copy of it", shown(path)),
                    {0, path.native()});
      }
      if (is_checkpoint(path)) {
        groups_.push_back({path});
        continue;
      }
      groups_.push_back(checkpoints_in(path));
      if (!groups_.back().empty()) continue;
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}' is neither a checkpoint of Cairn's nor a root of checkpoints", shown(path)),
                  {0, path.native()});
    }
  }

  [[nodiscard]] std::vector<fs::path> directories_for(const fs::path& checkpoint) const {
    std::vector<fs::path> all;
    for (std::vector<fs::path> group : groups_) {
      std::stable_partition(group.begin(), group.end(),
                            [&](const fs::path& one) { return one.filename() == checkpoint.filename(); });
      std::ranges::move(group, std::back_inserter(all));
    }
    return all;
  }

 private:
  std::vector<std::vector<fs::path>> groups_;
};

/// Something that a saver or a repair left, which has ended.
struct Leftover {
  fs::path path;
  const char* what = "";
  bool is_ours = false;  ///< removed here; the others are cleared when the lease is taken
};

std::vector<Leftover> leftovers_in(const fs::path& root) {
  std::vector<Leftover> left;
  for (const auto& entry : os::list_directory(root)) {
    const auto name = root::parse_root_name(entry.name);
    if (!name) continue;
    const fs::path path = root / entry.name;
    switch (name->kind) {
      case RootName::Kind::kPartial: left.push_back({path, "was left by a save that ended early"}); break;
      case RootName::Kind::kTemporary: left.push_back({path, "was left by a save that ended early"}); break;
      case RootName::Kind::kReplaced:
        left.push_back({path, os::is_name_taken(root::checkpoint_directory(root, name->step))
                                  ? "holds a checkpoint that was replaced"
                                  : "holds a checkpoint that has lost its name"});
        break;
      case RootName::Kind::kCheckpoint: break;
    }
  }
  for (const fs::path& checkpoint : checkpoints_in(root)) {
    for (const fs::path& file : life::left_by_repairs(checkpoint)) {
      left.push_back({file, "was left by a repair that ended early", true});
    }
  }
  const fs::path folder = root / root::kLeaseDirectory;
  if (!os::exists(folder)) return left;
  for (const auto& entry : os::list_directory(folder)) {
    const std::string_view name = entry.name;
    const bool is_log = name.starts_with("log.") && name.ends_with(".tmp");
    const bool is_state = name.starts_with(fmt::format("{}.tmp-", root::kRootStateFile));
    if (name.starts_with(root::kRemovedPrefix)) {
      left.push_back({folder / entry.name, "was to be deleted"});
    } else if (is_log || is_state) {
      left.push_back({folder / entry.name, "was left by a save that ended early", true});
    }
  }
  return left;
}

/// The root's own files, and all else that a repair does in a root.
class RootRepair {
 public:
  RootRepair(const Place& place, const From& from, const RepairOptions& options, root::Lease* lease, Repair& result)
      : place_(place), root_(*place.root), from_(from), dry_run_(options.dry_run), lease_(lease), result_(result) {}

  /// `left`: listed before the lease was taken, which has cleared most of it.
  void run(const std::vector<Leftover>& left) {
    clear(left);
    for (const RootEntry& entry : root::list_root(root_)) {
      if (place_.step && entry.step != *place_.step) continue;
      if (!entry.partial) examine(entry);
    }
    const std::size_t before = result_.actions.size() + result_.faults.size();
    put_right_latest();
    if (result_.actions.size() + result_.faults.size() != before) note_own(before);
  }

 private:
  [[nodiscard]] const char* would() const { return dry_run_ ? "would be " : ""; }
  void look() const {
    if (lease_ != nullptr) lease_->look();
  }
  void add_action(const fs::path& path, std::string what) {
    result_.actions.push_back({path, std::nullopt, std::move(what), 0, 0});
  }
  void add_note(std::string note) { result_.notes.push_back(std::move(note)); }

  void clear(const std::vector<Leftover>& left) {
    if (!dry_run_) look();
    for (const Leftover& one : left) {
      if (!dry_run_ && one.is_ours) os::remove_tree(one.path);
      if (!dry_run_ && os::is_name_taken(one.path)) {
        add_note(fmt::format("'{}' {}, and stays", shown(one.path), one.what));
        continue;
      }
      const bool is_named_again = std::string_view(one.what).ends_with("lost its name");
      add_action(one.path, fmt::format("'{}' {}: {}{}", shown(one.path), one.what, would(),
                                       is_named_again ? "given its name again" : "removed"));
    }
    cleared_ = result_.actions.size();
  }

  /// Other checkpoints of the root, those of the nearest steps first.
  [[nodiscard]] std::vector<fs::path> beside(std::uint64_t step) const {
    std::vector<std::pair<std::uint64_t, fs::path>> others;
    for (const fs::path& directory : checkpoints_in(root_)) {
      const std::uint64_t other = root::parse_root_name(directory.filename().native())->step;
      if (other != step) others.emplace_back(other > step ? other - step : step - other, directory);
    }
    std::ranges::stable_sort(others, {}, [](const auto& other) { return other.first; });
    std::vector<fs::path> directories;
    for (auto& other : others) directories.push_back(std::move(other.second));
    return directories;
  }

  void examine(const RootEntry& entry) {
    const fs::path directory = root::checkpoint_directory(root_, entry.step);
    std::error_code ignored;
    if (fs::is_symlink(fs::symlink_status(directory, ignored))) {
      return add_note(fmt::format("'{}' is not examined: it is a link", shown(directory)));
    }
    if (entry.condition == root::Condition::kForeign) {
      return add_note(fmt::format("'{}' is not examined: it is not Cairn's", shown(directory)));
    }
    if (entry.directory != directory) {
      return add_note(fmt::format("'{}' is not examined: it is moved aside for a replacement", shown(directory)));
    }
    CallLine line(root_, format::kLogRepair, entry.step);
    const std::size_t actions = result_.actions.size();
    const std::size_t faults = result_.faults.size();
    life::repair_checkpoint({directory, entry.step, dry_run_, lease_ != nullptr ? lease_->nonce() : "", [&] { look(); },
                             from_.directories_for(directory), beside(entry.step)},
                            result_);
    if (result_.actions.size() == actions && result_.faults.size() == faults) return;
    for (std::size_t i = actions; i < result_.actions.size(); ++i) line.call.bytes += result_.actions[i].bytes;
    line.call.files = result_.actions.size() - actions;
    line.call.run_id = entry.run_id;
    append(line, faults);
  }

  /// A line for the root itself.
  void note_own(std::size_t before) {
    CallLine line(root_, format::kLogRepair, std::nullopt);
    line.call.files = cleared_ + result_.actions.size() + result_.faults.size() - before;
    append(line, result_.faults.size());
  }

  void append(CallLine& line, std::size_t faults) {
    if (dry_run_) return;
    line.call.faults = result_.faults.size() - faults;
    if (line.call.faults != 0) line.fail(Error(ErrorKind::kIntegrity, result_.faults[faults].message));
    line.append(lease_);
  }

  // The latest file and the root's state

  void put_right_latest() {
    try {
      try_to_put_right_latest();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kState || os::is_shortage(error)) throw;
      result_.faults.push_back({root_ / root::kLatestFile,
                                std::nullopt,
                                std::nullopt,
                                {},
                                fmt::format("which checkpoint is the newest is not put right: {}", error.what())});
    }
  }

  void try_to_put_right_latest() {
    const std::vector<RootEntry> entries = root::list_root(root_);
    const std::optional<std::uint64_t> newest = newest_of(entries);
    if (!newest) return;
    const std::string of_state = root::problem_of_root_state(root_);
    const root::RootState state = root::read_root_state(root_);
    const RootEntry* head = root::head_of(entries, state.run_id);
    const std::string run_id = head != nullptr && !head->run_id.empty() ? head->run_id : state.run_id;
    const std::string of_latest = problem_of_latest(entries, *newest, state);
    const fs::path latest = root_ / root::kLatestFile;
    if (!of_latest.empty()) {
      if (!dry_run_) write_latest(*newest, run_id);
      add_action(latest, fmt::format("'{}' {}: {}made to name step {}", shown(latest), of_latest, would(), *newest));
    }
    if (of_state.empty()) return;
    const bool is_known = !of_latest.empty() || (head != nullptr && root::read_latest_file(root_) == head->step);
    if (!dry_run_) {
      root::remake_root_state(root_, {is_known ? newest : std::optional<std::uint64_t>(), run_id});
    }
    const fs::path path = root_ / root::kLeaseDirectory / root::kRootStateFile;
    add_action(path, fmt::format("'{}' {}: {}written anew{}", shown(path), of_state, would(),
                                 is_known ? ""
                                          : fmt::format("; it does not tell whether a person chose the step in '{}', "
                                                        "which therefore stays",
                                                        root::kLatestFile)));
  }

  /// Nothing if a damaged or unreadable step may be the newest: its fault is listed already.
  std::optional<std::uint64_t> newest_of(const std::vector<RootEntry>& entries) {
    try {
      return root::newest_step(root_, entries);
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
      add_note(fmt::format("'{}' is not examined, because the newest checkpoint is not known: {}",
                           shown(root_ / root::kLatestFile), error.what()));
      return std::nullopt;
    }
  }

  /// A step that a person chose stays, if there is such a checkpoint.
  std::string problem_of_latest(const std::vector<RootEntry>& entries, std::uint64_t newest,
                                const root::RootState& state) const {
    if (!os::is_name_taken(root_ / root::kLatestFile)) return "is missing";
    const std::optional<std::uint64_t> named = root::read_latest_file(root_);
    if (!named) return "does not name a step";
    const bool is_there =
        std::ranges::any_of(entries, [&](const RootEntry& entry) { return !entry.partial && entry.step == *named; });
    if (!is_there) return fmt::format("names step {}, which is not there", *named);
    if (*named == newest || state.latest_written != named) return "";
    const std::vector<RootEntry> order = root::resume_order(root_, entries);
    const auto at = [&](std::uint64_t step) { return std::ranges::find(order, step, &RootEntry::step); };
    return at(newest) < at(*named) ? fmt::format("names step {}, though a later one is whole", *named) : "";
  }

  /// As the last steps of a commit, with the same names.
  void write_latest(std::uint64_t step, const std::string& run_id) {
    const fs::path temporary = root::latest_temporary(root_, lease_->nonce());
    const std::string text = fmt::format("{}\n", step);
    try {
      os::fault_point("repair.latest", root_);
      os::write_new_file(temporary, base::as_bytes(text));
      look();
      os::fault_point("repair.latest.rename", root_);
      os::rename(temporary, root_ / root::kLatestFile);
    } catch (...) {
      os::remove_tree(temporary);
      throw;
    }
    os::sync_directory(root_);
    os::fault_point("repair.noted", root_);
    root::note_latest(root_, step, run_id);
  }

  const Place& place_;
  const fs::path& root_;
  const From& from_;
  const bool dry_run_;
  root::Lease* const lease_;
  Repair& result_;
  std::size_t cleared_ = 0;
};

Repair repair_in_root(const Place& place, const From& from, const RepairOptions& options) {
  const fs::path& root = *place.root;
  Repair result;
  if (options.dry_run) {
    RootRepair(place, from, options, nullptr, result).run(leftovers_in(root));
    return result;
  }
  return life::logged(root, format::kLogRepair, place.step, [&](CallLine&) {
    root::Lease lease(root, {60, options.wait_seconds, [&] { return root::highest_saved_epoch(root); }});
    const std::vector<Leftover> left = leftovers_in(root);
    root::take_root(lease);
    RootRepair(place, from, options, &lease, result).run(left);
    return std::move(result);
  });
}

}  // namespace

Repair repair(const fs::path& path, const RepairOptions& options) {
  const Place place = place_of(path);
  const From from(options.from, place);
  if (place.root) return repair_in_root(place, from, options);
  Repair result;
  for (const fs::path& file : life::left_by_repairs(place.path)) {
    result.notes.push_back(
        fmt::format("'{}' is of another repair, or was left by one: remove it when none is running", shown(file)));
  }
  life::repair_checkpoint(
      {place.path, std::nullopt, options.dry_run, os::random_nonce(), [] {}, from.directories_for(place.path), {}},
      result);
  return result;
}

}  // namespace cairn
