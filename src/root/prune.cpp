#include "root/prune.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "root/commit.hpp"
#include "root/lease_folder.hpp"
#include "root/pins.hpp"
#include "root/root_state.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

using os::shown;

constexpr std::size_t kDeletingThreads = 8;

/// The time at which the manifest was written; 0: unknown.
std::int64_t saved_s(const fs::path& checkpoint) {
  std::error_code failed;
  const auto time = fs::last_write_time(checkpoint / format::kManifestFile, failed);
  if (failed) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

/// Facts about a root by which its entries are judged.
struct RootFacts {
  std::set<std::uint64_t> pins;
  std::set<std::uint64_t> named;                 ///< by the latest file, and by Cairn's note of what it wrote there
  std::string run_id;                            ///< run of the head
  std::set<fs::path> in_resume_order;            ///< directories
  std::map<std::uint64_t, std::uint64_t> bases;  ///< step of a base -> step of a part that needs it
  const RootEntry* head = nullptr;
};

bool is_of_other_run(const RootEntry& entry, const RootFacts& facts) {
  if (entry.run_id.empty() || facts.run_id.empty() || entry.run_id == facts.run_id) return false;
  return entry.is_void || entry.is_of_other_run;
}

void set_fitness(RetentionEntry& judged, const RootEntry& entry, const RootFacts& facts) {
  const auto is = [&](Fitness fitness, std::string problem) {
    judged.fitness = fitness;
    judged.problem = std::move(problem);
  };
  std::error_code ignored;
  if (entry.partial) return is(Fitness::kPartial, "not committed: being saved, or left by a crash");
  if (fs::is_symlink(entry.directory, ignored)) return is(Fitness::kForeign, "a link, which Cairn did not make");
  if (is_of_other_run(entry, facts)) return is(Fitness::kForeign, "of another run");
  const bool is_from_elsewhere = entry.has_manifest && entry.generation.epoch == 0;
  if (is_from_elsewhere) return is(Fitness::kForeign, "not saved into this root: copied or converted");
  switch (entry.condition) {
    case Condition::kWhole:
      if (entry.is_void) is(Fitness::kVoid, entry.problem);
      return;
    case Condition::kIncomplete:
    case Condition::kDamaged: return is(Fitness::kDamaged, fmt::format("damaged: {}", entry.problem));
    case Condition::kForeign: return is(Fitness::kForeign, "not Cairn's");
    case Condition::kNewer: return is(Fitness::kForeign, "of a newer Cairn");
    case Condition::kUnreadable: return is(Fitness::kForeign, fmt::format("cannot be read now: {}", entry.problem));
  }
}

RetentionEntry judge(const RootEntry& entry, const RootFacts& facts) {
  RetentionEntry judged;
  judged.step = entry.step;
  judged.metrics = entry.metrics;
  if (entry.part) judged.part = format::words_of_tensors(*entry.part);
  judged.is_pinned = facts.pins.contains(entry.step);
  set_fitness(judged, entry, facts);
  if (judged.fitness == Fitness::kGood) judged.saved_s = saved_s(entry.directory);
  if (facts.named.contains(entry.step)) {
    judged.held = fmt::format("named by {}", kLatestFile);
  } else if (facts.head != nullptr && facts.head->step == entry.step) {
    judged.held = "the last save of the run, which tells what is void";
  } else if (entry.is_replaced) {
    judged.held = "being replaced";
  } else if (const auto base = facts.bases.find(entry.step); base != facts.bases.end()) {
    judged.held = fmt::format("the base of step {}", base->second);
  } else if (judged.fitness == Fitness::kGood && !entry.part && !facts.in_resume_order.contains(entry.directory)) {
    judged.held = fmt::format("saved after the step that {} was edited to name", kLatestFile);
  }
  return judged;
}

RootFacts facts_of(const fs::path& root, const std::vector<RootEntry>& listed, const std::vector<RootEntry>& order) {
  RootFacts facts;
  facts.pins = read_pins(root);
  const RootState state = read_root_state(root);
  if (state.latest_written) facts.named.insert(*state.latest_written);
  if (const auto named = read_latest_file(root)) facts.named.insert(*named);
  facts.head = head_of(listed, state.run_id);
  if (facts.head != nullptr) facts.run_id = facts.head->run_id;
  for (const RootEntry& entry : order) facts.in_resume_order.insert(entry.directory);
  for (const RootEntry& entry : listed) {
    const bool has_base = entry.is_complete() && entry.part && entry.part->base && entry.part->base->step;
    if (has_base) facts.bases.emplace(*entry.part->base->step, entry.step);
  }
  return facts;
}

/// The files of directories, and what else is in them, deleted by several threads. The caller's thread is one of them,
/// so that its deletions count as progress of its rank.
class Deletion {
 public:
  /// Files in a directory of a tree that a thread of its own deletes.
  void add(const fs::path& tree) {
    trees_.push_back(tree);
    for (const auto& entry : os::list_directory(tree)) {
      for (const auto& file : os::list_directory(tree / entry.name)) {
        const fs::path path = tree / entry.name / file.name;
        paths_.push_back(path);
        if (file.is_regular && !file.is_link) count(path);
      }
    }
  }

  /// Throws the first failure, after all has been tried.
  void run() {
    std::vector<std::thread> threads;
    const std::size_t more = std::min(kDeletingThreads, paths_.size()) - (paths_.empty() ? 0 : 1);
    threads.reserve(more);  // a thread must not be lost between its start and its place here
    try {
      for (std::size_t i = 0; i < more; ++i) threads.push_back(os::start_thread([this] { remove_paths(); }));
    } catch (const std::exception&) {  // fewer threads do the same
    }
    remove_paths();
    for (std::thread& thread : threads) thread.join();
    for (const fs::path& tree : trees_) remove(tree);
    if (failure_) std::rethrow_exception(failure_);
  }

  [[nodiscard]] std::uint64_t freed_bytes() const { return freed_bytes_; }

 private:
  /// Bytes under a name that is not the only one are not freed.
  void count(const fs::path& file) {
    std::error_code failed;
    if (fs::hard_link_count(file, failed) != 1 || failed) return;
    const std::uint64_t bytes = fs::file_size(file, failed);
    if (!failed) freed_bytes_ += bytes;
  }

  void remove_paths() {
    for (std::size_t i = next_++; i < paths_.size(); i = next_++) remove(paths_[i]);
  }

  void remove(const fs::path& path) noexcept {
    try {
      os::remove_tree(path);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  std::vector<fs::path> trees_;
  std::vector<fs::path> paths_;
  std::atomic<std::size_t> next_{0};
  std::uint64_t freed_bytes_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

class Pruner {
 public:
  Pruner(Lease& lease, LoadWatch& loads) : lease_(lease), root_(lease.root()), loads_(loads) {}

  /// Steps 1 to 3. Returns why the checkpoint stays; empty: it is gone.
  std::string take_away(const RootEntry& entry) {
    const fs::path directory = checkpoint_directory(root_, entry.step);
    const fs::path container = replaced_directory(directory, lease_.nonce());
    const fs::path old = container / directory.filename();
    try {
      os::fault_point("prune.begin", directory);
      os::make_new_directory(container);
      lease_.look();
      os::fault_point("prune.looked", directory);
      if (os::try_rename(directory, old) != os::Renamed::kDone) {
        os::remove_tree(container);
        return os::is_name_taken(directory) ? "it could not be moved" : "it has disappeared";
      }
      os::fault_point("prune.aside", directory);
      lease_.look();
      if (const std::string why = why_held(entry.step); !why.empty()) {
        give_back(old, directory, container);
        return why;
      }
      os::fault_point("prune.remove", directory);
      const fs::path removed = folder() / fmt::format("{}{}", kRemovedPrefix, os::random_nonce());
      if (os::try_rename(container, removed) != os::Renamed::kDone) return "another saver has taken it back";
      removed_.push_back(removed);
      return {};
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kState) throw;  // another saver: it finds the checkpoint, and gives it its name
      try {
        give_back(old, directory, container);
      } catch (const Error& failure) {
        return fmt::format("{}; it is now in '{}', where loads find it ({})", error.what(), shown(container),
                           failure.what());
      }
      return error.what();
    }
  }

  /// Step 4. Returns the first failure.
  std::string delete_removed(std::uint64_t& freed_bytes) {
    if (removed_.empty()) return {};
    try {
      os::fault_point("prune.delete", root_);
      os::sync_directory(root_);  // or a power failure would bring back names of checkpoints without files
      os::sync_directory(folder());
      Deletion deletion;
      for (const fs::path& tree : removed_) deletion.add(tree);
      freed_bytes = deletion.freed_bytes();
      deletion.run();
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  }

 private:
  [[nodiscard]] fs::path folder() const { return root_ / kLeaseDirectory; }

  std::string why_held(std::uint64_t step) {
    if (is_pinned(root_, step)) return "pinned just now";
    if (read_latest_file(root_) == step) return fmt::format("named by {} just now", kLatestFile);
    const auto loads = loads_.look(root_);
    const auto load = loads.find(step);
    return load == loads.end() ? std::string() : load->second.words;
  }

  static void give_back(const fs::path& old, const fs::path& directory, const fs::path& container) {
    os::try_rename(old, directory);
    if (!os::is_name_taken(old)) os::remove_tree(container);
  }

  Lease& lease_;
  const fs::path& root_;
  LoadWatch& loads_;
  std::vector<fs::path> removed_;
};

}  // namespace

PrunePlan plan_prune(const fs::path& root, const Retention& retention, LoadWatch& loads, std::int64_t now_s) {
  check_retention(retention);
  PrunePlan plan;
  const std::vector<RootEntry> listed = list_root(root);
  plan.entries = resume_order(root, listed);
  const RootFacts facts = facts_of(root, listed, plan.entries);
  const std::size_t in_order = plan.entries.size();
  for (const RootEntry& entry : listed) {
    if (!facts.in_resume_order.contains(entry.directory)) plan.entries.push_back(entry);
  }
  // Parts, the last saved first, then all others.
  std::stable_sort(plan.entries.begin() + static_cast<std::ptrdiff_t>(in_order), plan.entries.end(),
                   [](const RootEntry& a, const RootEntry& b) {
                     if (!a.part || !b.part) return a.part.has_value() && !b.part;
                     return std::tie(b.generation, b.step) < std::tie(a.generation, a.step);
                   });
  std::vector<RetentionEntry> judged;
  for (const RootEntry& entry : plan.entries) judged.push_back(judge(entry, facts));
  plan.verdicts = decide(judged, retention, now_s);
  const auto open = loads.look(root);
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const auto load = open.find(judged[i].step);
    if (!plan.verdicts[i].goes || load == open.end()) continue;
    plan.verdicts[i] = {false, load->second.words};
    plan.waits_for_load = plan.waits_for_load || load->second.may_be_over;
  }
  plan.order = removal_order(judged, plan.verdicts);
  return plan;
}

Pruning fates_of(const PrunePlan& plan) {
  Pruning pruning;
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const RootEntry& entry = plan.entries[i];
    pruning.steps.push_back({entry.step, entry.directory, plan.verdicts[i].goes, plan.verdicts[i].why, entry.bytes});
  }
  std::ranges::stable_sort(pruning.steps, {}, &StepFate::step);
  return pruning;
}

Pruning prune(Lease& lease, const PrunePlan& plan, LoadWatch& loads) {
  Pruning pruning = fates_of(plan);
  if (plan.order.empty()) return pruning;
  clear_own(lease);
  Pruner pruner(lease, loads);
  for (const std::size_t i : plan.order) {
    const RootEntry& entry = plan.entries[i];
    std::string why_not = pruner.take_away(entry);
    if (why_not.empty()) continue;
    const auto fate = std::ranges::find(pruning.steps, entry.directory, &StepFate::directory);
    fate->goes = false;
    fate->why = why_not;
    pruning.warnings.push_back(fmt::format("'{}' stays: {}", shown(entry.directory), why_not));
  }
  const std::string failure = pruner.delete_removed(pruning.freed_bytes);
  if (!failure.empty()) {
    pruning.warnings.push_back(
        fmt::format("what was pruned could not be deleted now ({}); the next saver of the root tries again", failure));
  }
  return pruning;
}

}  // namespace cairn::root
