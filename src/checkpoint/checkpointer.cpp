// The public Checkpointer on top of Saver, AsyncSaver and Loader.
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "cairn/checkpoint.hpp"
#include "checkpoint/async.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/check_options.hpp"
#include "checkpoint/environment.hpp"
#include "checkpoint/extras.hpp"
#include "checkpoint/listing.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/newest.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/root_log.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/targets.hpp"
#include "checkpoint/ticket.hpp"
#include "codes/view.hpp"
#include "comm/agree.hpp"
#include "comm/call_name.hpp"
#include "comm/launcher.hpp"
#include "os/access.hpp"
#include "os/file.hpp"
#include "root/lease.hpp"
#include "root/root.hpp"
#include "root/views.hpp"

namespace cairn {
using comm::CallName;
using opening::OpenCheckpoint;

struct Checkpointer::State {
  State(comm::Communicator& ours, std::filesystem::path root_path, Options given_options)
      : root(std::move(root_path)),
        options(std::move(given_options)),
        access(os::access_of(options.files.mode, options.files.group)),
        saver(ours, options, windows) {}

  /// Collective: opens the step and returns read(opened); starts over if another checkpoint takes its place.
  template <class Read>
  auto with_open(std::uint64_t step, Read read) {
    const os::AccessScope scope(access);  // of the mark that the load makes
    opening::Parts where;
    agree_on_step(step, [&](std::filesystem::path directory) { where = std::move(directory); });
    return opening::with_open(*communicator, where, opening::allowed_by(options), read);
  }
  Report save(std::uint64_t step, std::span<const Source> sources, const Extras& extras);
  SaveTicket save_async(std::uint64_t step, std::span<const Source> sources, const Extras& extras);
  Report load(std::uint64_t step, const OpenCheckpoint& opened, const checkpoint::LoadRequest& request,
              const checkpoint::PhaseClock& whole);
  template <class TargetsOfOpened>
  Report load_latest(CallName name, const LoadOptions& load_options, const TargetsOfOpened& targets_of);

  /// Collective, as `work`, a call that returns a report. Appends a line about it to the root's log, on rank 0.
  template <class Work, class AddReport>
  Report logged(const char* what, std::optional<std::uint64_t> step, Work work, AddReport add_report) {
    const auto began = std::chrono::steady_clock::now();
    try {
      Report report = work();
      if (log) add_report(*log, report);
      return report;
    } catch (const Error& error) {
      if (log) log->add_error({what, step, checkpoint::outcome_of(error, *communicator), began}, error);
      throw;
    }
  }
  template <class Work>
  Report logged_load(std::optional<std::uint64_t> step, Work work) {
    return logged(format::kLogLoad, step, work,
                  [&](checkpoint::RootLog& to, const Report& report) { to.add_load(report, loaded_run); });
  }

  /// Rank-local, on rank 0.
  void watch_lease() {
    lease = std::make_unique<root::Lease>(root, root::Lease::Setup{options.lease.seconds, options.lease.wait_seconds,
                                                                   [this] { return root::highest_saved_epoch(root); }});
    life.lease = lease.get();
  }
  /// Rank-local. Later saves descend from `opened`, in a new epoch if this object has saved before.
  /// A running save is not affected.
  void resume_from(const format::Manifest& opened, std::uint64_t step) {
    resumed = checkpoint::lineage_after(opened, step);
    if (!async || !async->is_busy()) begin_life();
  }
  /// Rank-local, while no save is running. Keeps the lease, so that no other saver takes the root between two epochs.
  void begin_life() noexcept {
    if (!resumed) return;
    const bool has_saved = life.saves != 0;
    life = {life.lease, std::move(*resumed), 0};
    resumed.reset();
    if (has_saved && lease != nullptr) lease->begin_life();
  }
  /// Ends the communicator of calls before the saver's: ranks that are still in a call learn of the end there.
  ~State() {
    end_async();
    if (communicator) comm::end_calls(*communicator);
    share_silence();
  }

  /// Waits for the running save. Later calls do not wait again for ranks that were missing in it.
  void end_async() {
    if (!async) return;
    async->wait();
    share_silence();
  }
  void share_silence() {
    if (!async) return;
    const auto of_saves = apart->liveness();
    const auto here = communicator->liveness();
    if (!of_saves || !here) return;
    here->follow(*of_saves);
    of_saves->follow(*here);
  }
  /// Rank-local. Must not fail, because the ranks have not agreed on anything yet; so it copies nothing.
  void settle() {
    end_async();
    begin_life();
    life.passed_over = passed_over;
    if (!loaded) return;
    if (async) {
      async->compare_with(std::move(*loaded));
    } else {
      saver.writer.compare_with(std::move(*loaded));
    }
    loaded.reset();
  }

  /// Collective; does nothing after the first time.
  void make_async();
  void check_launcher() { comm::agree(*communicator, "look at the launcher", &comm::refuse_lonely_process); }
  /// Collective: calls put(directory of the step); the step must be the same on all ranks.
  template <class Put>
  void agree_on_step(std::uint64_t step, Put put) {
    comm::agree_on_values(*communicator, "argument", [&](std::vector<comm::NamedValue>& values) {
      values.push_back({"step", std::to_string(step)});
      put(root::checkpoint_directory(root, step));
    });
  }
  std::filesystem::path directory_of(std::uint64_t step) {
    std::filesystem::path directory;
    agree_on_step(step, [&](std::filesystem::path found) { directory = std::move(found); });
    return directory;
  }

  std::unique_ptr<comm::Communicator> communicator;
  std::filesystem::path root;
  Options options;
  os::Access access;  ///< access of new files
  io::WindowStore windows;
  checkpoint::Saver saver;
  std::unique_ptr<root::Lease> lease;  ///< on rank 0
  checkpoint::RootLife life;
  std::unique_ptr<checkpoint::RootLog> log;          ///< on rank 0, with Options::run_log
  std::string loaded_run;                            ///< the run that saved the checkpoint loaded last, on rank 0
  std::optional<std::vector<format::Life>> resumed;  ///< lineage of `life` from the next save on
  checkpoint::RootLife::Steps passed_over;           ///< damaged steps that the resuming load skipped
  std::optional<checkpoint::StepBefore> loaded;      ///< the step to compare with the next save
  std::unique_ptr<comm::Communicator> apart;         ///< communicator of `async`
  std::unique_ptr<checkpoint::AsyncSaver> async;     ///< set by the first save_async() or prepare_async(), for all
                                                     ///< later saves; last, because it uses the other members
};

namespace {

/// Rank-local. A program that passes a checkpoint as its root would find no checkpoint there, start from nothing, and
/// save into it.
void refuse_checkpoint(const std::filesystem::path& root) {
  if (!os::exists(root / format::kManifestFile)) return;
  throw Error(ErrorKind::kUsage,
              "'" + os::shown(root) + "' is a checkpoint, and a root is a directory that has checkpoints: give '" +
                  os::shown(root.parent_path()) + "', or another one",
              {0, root.native()});
}

}  // namespace

Checkpointer::Checkpointer(MPI_Comm given, std::filesystem::path root, Options options) {
  auto communicator = checkpoint::watched_communicator(given, options);
  checkpoint::run_call(*communicator, CallName::kCheckpointer, "open the root", [&] {
    checkpoint::agree_on_options(*communicator, options, std::span(&root, 1));
    comm::agree(*communicator, "open the root", [&] {
      if (root.empty()) throw Error(ErrorKind::kUsage, "the root is empty; give the path of a directory");
      state_ = std::make_unique<State>(*communicator, os::absolute_path(root), std::move(options));
    });
    comm::agree_on_root(*communicator, "create the root directory", 0, [&] {
      const os::AccessScope access(state_->access);
      refuse_checkpoint(state_->root);
      os::make_directory(state_->root);
      state_->watch_lease();
    });
    root::check_all_nodes_see(*communicator, state_->root);
    comm::agree(*communicator, "open the log of the root", [&] {
      if (!state_->options.run_log || communicator->rank() != 0) return;
      state_->log = std::make_unique<checkpoint::RootLog>(state_->root, state_->access, *communicator);
    });
  });
  state_->communicator = std::move(communicator);
}

Checkpointer::~Checkpointer() = default;
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&&) noexcept = default;

const std::filesystem::path& Checkpointer::root() const { return state_->root; }

Report Checkpointer::save(std::uint64_t step, std::span<const Source> state, const Extras& extras) {
  state_->settle();
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  return state_->logged(
      format::kLogSave, step, [&] { return state_->save(step, state, extras); },
      [&](checkpoint::RootLog& log, const Report& report) { log.add_save(report, state_->life); });
}

/// Collective.
Report Checkpointer::State::save(std::uint64_t step, std::span<const Source> sources, const Extras& extras) {
  Report report;
  std::filesystem::path directory;
  checkpoint::run_call(*communicator, CallName::kSave, "save", [&] {
    check_launcher();
    const os::AccessScope scope(access);
    directory = directory_of(step);
    if (!async) report = saver.save(directory, step, sources, extras, &life);
  });
  if (async) report = async->save({{directory, step, extras, &life}, sources});
  report.step = step;
  return report;
}

namespace {

/// Collective: the reason why saves cannot run in the background, the same on all ranks; empty if they can.
std::string why_not_async(comm::Communicator& communicator) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (communicator.max(level == MPI_THREAD_MULTIPLE ? 0 : 1) == 0) return {};
  return "MPI was not initialised with MPI_THREAD_MULTIPLE (MPI_Init_thread) on every rank";
}

}  // namespace

/// Makes the saver on all ranks or on no rank: if one rank gets no thread, no rank keeps a saver.
void Checkpointer::State::make_async() {
  if (async) return;
  std::string why_not = why_not_async(*communicator);
  auto duplicate = communicator->duplicate();
  std::unique_ptr<checkpoint::AsyncSaver> made;
  comm::agree(*communicator, "begin asynchronous saves", [&] {
    saver.planner.forget_plan();  // from now on the AsyncSaver saves
    made = std::make_unique<checkpoint::AsyncSaver>(
        checkpoint::AsyncSaver::Setup{*duplicate, options, access, std::move(why_not), log.get()});
  });
  windows.pool.reset();
  apart = std::move(duplicate);
  async = std::move(made);
  async->compare_with(saver.writer.take_before());
}

SaveTicket Checkpointer::save_async(std::uint64_t step, std::span<const Source> state, const Extras& extras) {
  const auto began = std::chrono::steady_clock::now();
  try {
    return state_->save_async(step, state, extras);
  } catch (const Error& error) {  // before the save could begin; an error after that is logged when the save has ended
    if (auto* const log = state_->log.get()) {
      log->add_error({format::kLogSave, step, checkpoint::outcome_of(error, *state_->communicator), began}, error);
    }
    throw;
  }
}

/// Collective.
SaveTicket Checkpointer::State::save_async(std::uint64_t step, std::span<const Source> sources, const Extras& extras) {
  const auto came = std::chrono::steady_clock::now();
  std::filesystem::path directory;
  std::shared_ptr<SaveTicket::State> ticket;
  bool is_busy = false;
  checkpoint::run_call(*communicator, CallName::kSaveAsync, "save", [&] {
    check_launcher();
    directory = directory_of(step);
    make_async();
    is_busy = communicator->max(async->is_busy() ? 1 : 0) != 0;
    comm::agree(*communicator, "begin a save", [&] {
      ticket = std::make_shared<SaveTicket::State>();
      ticket->step = step;
      if (is_busy && options.async.when_busy == WhenBusy::kFail) {
        throw Error(ErrorKind::kState, "a save is still under way; wait for its ticket, or choose another WhenBusy");
      }
    });
  });
  if (is_busy && options.async.when_busy == WhenBusy::kSkip) {
    ticket->was_skipped = true;
    if (log) log->add_skipped(step);
    return SaveTicket(std::move(ticket));
  }
  settle();
  checkpoint::AsyncSaver::Request request{{directory, step, extras, &life}, sources};
  if (is_busy) request.wait_seconds = std::chrono::duration<double>(request.began - came).count();
  if (!is_busy) request.began = came;
  ticket->save = async->start(request);
  return SaveTicket(std::move(ticket));
}

void Checkpointer::prepare_async(std::span<const Source> state) {
  state_->settle();
  checkpoint::run_call(*state_->communicator, CallName::kPrepareAsync, "plan", [&] {
    state_->check_launcher();
    state_->make_async();
  });
  state_->async->prepare(state_->root, state);
}

void Checkpointer::release_memory() {
  state_->settle();
  checkpoint::run_call(*state_->communicator, CallName::kReleaseMemory, "release memory", [&] {
    if (state_->async) return;
    state_->saver.planner.forget_plan();
    state_->windows.pool.reset();
  });
  if (state_->async) state_->async->release_memory();
}

std::optional<std::uint64_t> Checkpointer::latest() {
  std::uint64_t found[] = {0, 0};
  checkpoint::run_call(*state_->communicator, CallName::kLatest, "latest", [&] {
    comm::agree_on_root(*state_->communicator, "look for the newest checkpoint", 0, [&] {
      if (const auto step = root::newest_step(state_->root)) {
        found[0] = 1;
        found[1] = *step;
      }
    });
    state_->communicator->broadcast(std::as_writable_bytes(std::span(found)), 0);
  });
  if (found[0] == 0) return std::nullopt;
  return found[1];
}

std::vector<StepInfo> Checkpointer::steps() {
  std::vector<StepInfo> steps;
  checkpoint::run_call(*state_->communicator, CallName::kSteps, "list",
                       [&] { steps = checkpoint::list_steps(*state_->communicator, state_->root); });
  return steps;
}

std::vector<TensorInfo> Checkpointer::tensors(std::uint64_t step, const Selection& selection) {
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  std::vector<TensorInfo> tensors;
  checkpoint::run_call(*state_->communicator, CallName::kTensors, "open", [&] {
    tensors = state_->with_open(step, [&](const OpenCheckpoint& opened) {
      std::vector<TensorInfo> listed;
      comm::agree(*state_->communicator, "list the tensors", [&] {
        const codes::View view = codes::loading_view(opened, codes::view_options(state_->options));
        listed = checkpoint::list_tensors(opened, view, selection);
      });
      return listed;
    });
  });
  return tensors;
}

Report Checkpointer::load(std::uint64_t step, std::span<const Target> targets, const LoadOptions& options) {
  const checkpoint::PhaseClock whole;
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  return state_->logged_load(step, [&] {
    Report report;
    checkpoint::run_call(*state_->communicator, CallName::kLoad, "open", [&] {
      report = state_->with_open(step, [&](const OpenCheckpoint& opened) {
        return state_->load(step, opened, {targets, options}, whole);
      });
    });
    return report;
  });
}

Report Checkpointer::load_latest(std::span<const Target> targets, const LoadOptions& options) {
  return state_->load_latest(CallName::kLoadLatest, options,
                             [&](std::uint64_t, const OpenCheckpoint&) { return targets; });
}

Report Checkpointer::load_latest(const TargetsOf& make, const LoadOptions& options) {
  std::vector<Target> made;  // for the current step
  return state_->load_latest(CallName::kLoadLatestMade, options, [&](std::uint64_t step, const OpenCheckpoint& opened) {
    made = checkpoint::make_targets(*state_->communicator, opened, {state_->options, options}, step, make);
    return std::span<const Target>(made);
  });
}

/// Collective. `targets_of` returns the targets for an open step.
template <class TargetsOfOpened>
Report Checkpointer::State::load_latest(CallName name, const LoadOptions& load_options,
                                        const TargetsOfOpened& targets_of) {
  const checkpoint::PhaseClock whole;
  Report report;
  const auto load_step = [&](std::uint64_t step) {
    const checkpoint::ProgressScope progress(options.progress, step);
    return with_open(step, [&](const OpenCheckpoint& opened) {
      if (!opened.manifest) {  // the manifest existed when the root was listed; without it nothing would be verified
        throw comm::AgreedError(ErrorKind::kIntegrity,
                                "checkpoint-" + std::to_string(step) + " has lost its cairn.json");
      }
      return load(step, opened, {targets_of(step, opened), load_options}, whole);
    });
  };
  return logged_load(std::nullopt, [&] {
    checkpoint::run_call(*communicator, name, "latest", [&] {
      // Passed by reference, because a copy may run out of memory on one rank alone.
      report = checkpoint::load_newest(*communicator, root, std::ref(load_step),
                                       load_options.parts ? root::Counted::kAll : root::Counted::kWholes);
      comm::agree(*communicator, "note what was passed over", [&] {
        auto steps = std::make_shared<std::set<std::uint64_t>>();
        for (const SkippedStep& one : report.skipped) steps->insert(one.step);
        passed_over = std::move(steps);
      });
    });
    return std::move(report);
  });
}

/// Collective.
Report Checkpointer::State::load(std::uint64_t step, const OpenCheckpoint& opened,
                                 const checkpoint::LoadRequest& request, const checkpoint::PhaseClock& whole) {
  codes::View view = checkpoint::view_to_load(*communicator, opened, options, request.options);
  checkpoint::Loader loader(*communicator, opened, &view, checkpoint::read_options(options), &windows);
  Report report = checkpoint::load_targets(*communicator, opened, request, view, loader, whole);
  report.step = step;
  const bool resumes = request.options.parts || !opened.manifest || !opened.manifest->part;
  comm::agree(*communicator, "resume from the checkpoint", [&] {
    loaded_run = opened.manifest ? opened.manifest->run_id : "";
    report.environment_changes = checkpoint::environment_changes_since(*communicator, opened, options.environment);
    if (opened.manifest) {
      std::string words = root::words_of_other_step(opened.directory, *opened.manifest);
      if (!words.empty()) {
        base::warn_once(words);
        report.warnings.push_back(std::move(words));
      }
      if (resumes) resume_from(*opened.manifest, step);
    }
    if (!resumes) return;
    passed_over.reset();
    const checkpoint::StepBefore::Share share{communicator->rank(), communicator->size()};
    loaded = opened.blocks ? checkpoint::StepBefore(step, *opened.blocks, share) : checkpoint::StepBefore();
  });
  return report;
}

Checkpointer::LoadedExtras Checkpointer::load_extras(std::uint64_t step, const BlobMapping& mapping) {
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  LoadedExtras extras;
  checkpoint::run_call(*state_->communicator, CallName::kLoadExtras, "open", [&] {
    checkpoint::agree_on_mapping(*state_->communicator, mapping);
    extras = state_->with_open(step, [&](const OpenCheckpoint& opened) {
      return checkpoint::read_extras(*state_->communicator, opened, mapping, checkpoint::read_options(state_->options),
                                     state_->windows);
    });
  });
  return extras;
}

std::vector<std::byte> Checkpointer::load_rank_blob(std::uint64_t step, std::optional<std::uint64_t> saving_rank) {
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  std::vector<std::byte> blob;
  checkpoint::run_call(*state_->communicator, CallName::kLoadRankBlob, "open", [&] {
    blob = state_->with_open(step, [&](const OpenCheckpoint& opened) {
      return checkpoint::read_rank_blob(*state_->communicator, opened, saving_rank,
                                        checkpoint::read_options(state_->options), state_->windows);
    });
  });
  return blob;
}

void Checkpointer::load_carried(std::uint64_t step, const std::string& name, const CarriedSink& sink) {
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  checkpoint::run_call(*state_->communicator, CallName::kLoadCarried, "open", [&] {
    comm::Communicator& communicator = *state_->communicator;
    comm::agree_on_values(communicator, "argument", [&](std::vector<comm::NamedValue>& values) {
      values.push_back({"name", name});
    });
    auto file = state_->with_open(
        step, [&](const OpenCheckpoint& opened) { return checkpoint::open_carried(communicator, opened, name); });
    checkpoint::give_carried(communicator, std::move(file), sink);  // from here on the call does not start over
  });
}

}  // namespace cairn
