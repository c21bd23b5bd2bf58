// The public Checkpointer on top of Saver and Loader.
#include <map>
#include <string>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/targets.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi.hpp"
#include "directory/carried.hpp"
#include "directory/lease.hpp"
#include "directory/root.hpp"
#include "os/access.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "plan/catalog.hpp"
#include "planning/describe.hpp"
#include "shard/box_math.hpp"

namespace cairn {
namespace {

using checkpoint::OpenCheckpoint;

constexpr std::uint64_t kMaxReturnedBytes = 64ULL << 20;

}  // namespace

struct Checkpointer::State {
  State(comm::Communicator& ours, std::filesystem::path root_path, Options given_options)
      : root(std::move(root_path)),
        options(std::move(given_options)),
        access(os::access_of(options.files.mode, options.files.group)),
        saver(ours, options, windows) {}

  /// Collective: what `read` gives of the step, which is opened again when another checkpoint takes its place
  /// meanwhile.
  template <class Read>
  auto with_open(std::uint64_t step, Read read) {
    return checkpoint::with_open(*communicator, directory_of(step), checkpoint::links_of(options.follow_links), read);
  }
  Report load(const OpenCheckpoint& opened, std::span<const Target> targets, const checkpoint::PhaseClock& whole);
  LoadedExtras load_extras(const OpenCheckpoint& opened);

  /// Rank-local, on rank 0.
  void watch_lease() {
    lease = std::make_unique<checkpoint::Lease>(
        root, checkpoint::Lease::Setup{options.lease.seconds, options.lease.wait_seconds,
                                       [this] { return checkpoint::highest_saved_epoch(root); }});
    life.lease = lease.get();
  }
  /// Rank-local. What is saved from now on descends from `opened`: after a save of this object in a new epoch, of a new
  /// lease.
  void resume_from(const format::Manifest& opened) {
    const bool has_saved = life.saves != 0;
    life = {life.lease, opened.lineage, 0};
    life.lineage.push_back({opened.epoch, opened.step});
    if (!has_saved || lease == nullptr) return;
    lease.reset();  // released before another one is watched
    watch_lease();
  }
  /// Collective: the directory of a step, which all ranks were given alike.
  std::filesystem::path directory_of(std::uint64_t step) {
    std::filesystem::path directory;
    comm::agree_on_values(*communicator, "argument", [&](std::vector<comm::NamedValue>& values) {
      values.push_back({"step", std::to_string(step)});
      directory = checkpoint::checkpoint_directory(root, step);
    });
    return directory;
  }

  std::unique_ptr<comm::Communicator> communicator;
  std::filesystem::path root;
  Options options;
  os::Access access;  ///< of what is made
  io::WindowStore windows;
  checkpoint::Saver saver;
  std::unique_ptr<checkpoint::Lease> lease;  ///< on rank 0
  checkpoint::RootLife life;
};

Checkpointer::Checkpointer(MPI_Comm given, std::filesystem::path root, Options options) {
  auto communicator = checkpoint::watched_communicator(given, options);
  checkpoint::run_call(*communicator, "open the root", [&] {
    checkpoint::agree_on_options(*communicator, options, root);
    comm::agree(*communicator, "open the root",
                [&] { state_ = std::make_unique<State>(*communicator, std::move(root), std::move(options)); });
    comm::agree_on_root(*communicator, "create the root directory", 0, [&] {
      const os::AccessScope access(state_->access);
      os::make_directory(state_->root);
      state_->watch_lease();
    });
  });
  state_->communicator = std::move(communicator);
}

Checkpointer::~Checkpointer() = default;
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&&) noexcept = default;

Report Checkpointer::save(std::uint64_t step, std::span<const Source> state, const Extras& extras) {
  Report report;
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  checkpoint::run_call(*state_->communicator, "save", [&] {
    comm::agree(*state_->communicator, "look at the launcher", comm::refuse_lonely_process);
    const os::AccessScope access(state_->access);
    report = state_->saver.save(state_->directory_of(step), step, state, extras, &state_->life);
  });
  return report;
}

void Checkpointer::release_memory() {
  checkpoint::run_call(*state_->communicator, "release memory", [&] {
    comm::agree(*state_->communicator, "release memory", [] {});
    state_->saver.forget_plan();
    state_->windows.pool.reset();
  });
}

std::optional<std::uint64_t> Checkpointer::latest() {
  std::uint64_t found[] = {0, 0};
  checkpoint::run_call(*state_->communicator, "latest", [&] {
    comm::agree_on_root(*state_->communicator, "look for the newest checkpoint", 0, [&] {
      if (const auto step = checkpoint::newest_step(state_->root)) {
        found[0] = 1;
        found[1] = *step;
      }
    });
    state_->communicator->broadcast(std::as_writable_bytes(std::span(found)), 0);
  });
  if (found[0] == 0) return std::nullopt;
  return found[1];
}

Report Checkpointer::load(std::uint64_t step, std::span<const Target> targets) {
  const checkpoint::PhaseClock whole;
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  Report report;
  checkpoint::run_call(*state_->communicator, "open", [&] {
    report =
        state_->with_open(step, [&](const OpenCheckpoint& opened) { return state_->load(opened, targets, whole); });
  });
  return report;
}

/// Collective.
Report Checkpointer::State::load(const OpenCheckpoint& opened, std::span<const Target> targets,
                                 const checkpoint::PhaseClock& whole) {
  const checkpoint::View view = checkpoint::view_to_load(*communicator, opened, options);
  checkpoint::Loader loader(*communicator, opened, &view, checkpoint::read_options(options), &windows);
  Report report = checkpoint::load_targets(*communicator, opened, targets, view, loader, whole);
  if (opened.manifest) {
    comm::agree(*communicator, "resume from the checkpoint", [&] { resume_from(*opened.manifest); });
  }
  return report;
}

Checkpointer::LoadedExtras Checkpointer::load_extras(std::uint64_t step) {
  const checkpoint::ProgressScope progress(state_->options.progress, step);
  LoadedExtras extras;
  checkpoint::run_call(*state_->communicator, "open", [&] {
    extras = state_->with_open(step, [&](const OpenCheckpoint& opened) { return state_->load_extras(opened); });
  });
  return extras;
}

/// Collective.
Checkpointer::LoadedExtras Checkpointer::State::load_extras(const OpenCheckpoint& opened) {
  base::Bytes texts;
  comm::agree_on_root(*communicator, "read the carried files", 0, [&] {
    base::ByteWriter out;
    for (const std::string& name : opened.carried) {
      if (os::file_size(opened.directory / name) > kMaxReturnedBytes) continue;
      out.text(name);
      out.text(checkpoint::read_carried(opened, name, kMaxReturnedBytes));
    }
    texts = out.take();
  });
  communicator->share(texts, 0);
  LoadedExtras extras;
  std::vector<plan::MemoryBox> wanted;
  comm::agree(*communicator, "find the extras", [&] {
    os::fault_memory("memory.extras");
    if (opened.manifest) {
      extras.metadata = opened.manifest->user_metadata;
      extras.layout = opened.manifest->layout;
    }
    base::ByteReader in(texts);
    while (!in.done()) {
      std::string name = in.text();
      extras.carried[std::move(name)] = in.text();
    }
    const auto numbers = plan::numbers_by_name(opened.stored.tensors);
    for (int rank = 0;; ++rank) {
      const auto at = numbers.find({checkpoint::kRankSection, checkpoint::rank_blob_name(rank)});
      if (at == numbers.end()) break;
      extras.rank_blobs.emplace_back(opened.stored.tensors[at->second].shape.at(0));
    }
    for (std::size_t rank = 0; rank < extras.rank_blobs.size(); ++rank) {
      const auto name = checkpoint::rank_blob_name(static_cast<int>(rank));
      const std::uint32_t number = numbers.at({checkpoint::kRankSection, name});
      wanted.push_back({number, shard::whole(opened.stored.tensors[number].shape), extras.rank_blobs[rank]});
    }
  });
  checkpoint::Loader(*communicator, opened, nullptr, checkpoint::read_options(options), &windows).load(wanted);
  return extras;
}

}  // namespace cairn
