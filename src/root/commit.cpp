#include "root/commit.hpp"

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/internal_error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"
#include "io/whole_files.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"
#include "os/process.hpp"
#include "os/storage.hpp"
#include "root/lease_folder.hpp"
#include "root/root.hpp"
#include "root/root_state.hpp"
#include "root/views.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNotNamed = "the file that names the latest was not written";

using os::shown;

/// Clears a root of unfinished files and directories that some savers left in it.
class Clearing {
 public:
  explicit Clearing(Lease& lease) : root_(lease.root()), folder_(root_ / kLeaseDirectory) {}

  void list(const std::function<bool(const std::string& nonce)>& is_to_go) {
    for (const auto& entry : os::list_directory(root_)) {
      if (const auto name = parse_root_name(entry.name); name && is_to_go(name->nonce)) names_.push_back(*name);
    }
  }

  /// First clears the names that a saver could still publish, then the names of replaced checkpoints.
  void clear() {
    for (const RootName& name : names_) {
      if (name.kind == RootName::Kind::kPartial || name.kind == RootName::Kind::kTemporary)
        move_away(root_ / name.text);
    }
    for (const RootName& name : names_) {
      if (name.kind == RootName::Kind::kReplaced) settle(name);
    }
    delete_removed();
  }

 private:
  /// Renames the path into .cairn at once; the deletion, which takes time, comes later.
  void move_away(const fs::path& path) {
    os::try_rename(path, folder_ / fmt::format("{}{}", kRemovedPrefix, os::random_nonce()));
  }

  void settle(const RootName& name) {
    const fs::path directory = checkpoint_directory(root_, name.step);
    // Readers understand the new name, but the former saver does not know it, and so cannot move anything in or out.
    const fs::path container = replaced_directory(directory, os::random_nonce());
    if (os::try_rename(root_ / name.text, container) != os::Renamed::kDone) return;
    os::fault_point("takeover.settle", container);
    const fs::path old = container / directory.filename();
    if (!os::exists(old)) return move_away(container);
    if (os::try_rename(old, directory) == os::Renamed::kDone) {
      say_restored(directory);
      return move_away(container);
    }
    const auto newer = generation_of(directory);
    if (newer && newer >= generation_of(old)) return move_away(container);
    base::log_warning(fmt::format("'{}' stays: '{}' is not complete, and readers take the old one", shown(container),
                                  shown(directory)));
  }

  static void say_restored(const fs::path& directory) {
    base::log_warning(
        fmt::format("'{}' was being replaced when its saver ended; the old one has its name again", shown(directory)));
  }

  void delete_removed() noexcept {
    try {
      for (const auto& entry : os::list_directory(folder_)) {
        if (entry.name.starts_with(kRemovedPrefix)) os::remove_tree(folder_ / entry.name);
      }
    } catch (const std::exception& error) {
      base::log_warning(fmt::format(
          "what an earlier saver left could not be deleted now ({}); the next saver tries again", error.what()));
    }
  }

  fs::path root_;
  fs::path folder_;
  std::vector<RootName> names_;
};

fs::path parent_of(const fs::path& directory) {
  return directory.has_parent_path() ? directory.parent_path() : fs::path(".");
}

/// Warns of partial directories: another run is writing there, or was killed; only the user of that run knows which.
void warn_of_others(const CommitTarget& target) {
  for (const auto& entry : os::list_directory(parent_of(target.directory))) {
    const std::string name = target.directory.filename().string() + '.';
    if (!entry.is_directory || !entry.name.starts_with(name) || !entry.name.ends_with(kPartialSuffix)) continue;
    base::log_warning(
        fmt::format("'{}' is of another run that writes '{}', or was left by one; remove it when no other run is alive",
                    shown(parent_of(target.directory) / entry.name), shown(target.directory)));
  }
}

/// Writes a carried file piece by piece; returns its entry for the manifest.
format::ManifestFile carry(const fs::path& directory, const std::string& name, const base::ByteStream& stream) {
  os::File file(directory / name, os::OpenMode::kCreateNew);
  format::ManifestFile written{name, "", 0, 0};
  format::RunningCrc32c crc;
  stream.give([&](std::span<const std::byte> piece) {
    file.write_at(piece, written.size_bytes);
    crc.add(piece);
    written.size_bytes += piece.size();
  });
  file.sync();
  file.close();
  written.crc32c = crc.value();
  return written;
}

Error disappeared(const fs::path& path) {
  return {ErrorKind::kIo,
          fmt::format("'{}' has disappeared while it was written: another program removed or renamed it", shown(path)),
          {0, path.native()}};
}

void add_data_files(CommitContent& content) {
  for (const auto& file : content.blocks.files) {
    const auto digest = content.sha256_of_file.find(file.name);
    content.manifest.data_files.push_back({file.name, content.section_of_file.at(file.name), file.size_bytes,
                                           format::file_digest(file, content.blocks.block_bytes),
                                           digest == content.sha256_of_file.end() ? "" : digest->second});
  }
}

/// Rank-local; called by a new holder of the lease before it saves. Renames away everything unfinished with another
/// nonce, so that a saver that was presumed dead finds nothing to rename; then deletes it:
///   checkpoint-<step>.<nonce>.partial, the temporary latest file   renamed away
///   checkpoint-<step>.<nonce>.replaced                             the old checkpoint in it gets its name back if the
///                                                                  name is free, or is renamed away if the name has a
///                                                                  whole checkpoint, not older; otherwise it stays
/// No other name in the root is touched. A failed deletion is a warning. Throws kState as Lease::look() does, and kIo
/// when a rename fails: then the root is not safe, and no save may continue.
void clear_root(Lease& lease) {
  os::refresh_directory(lease.root(), fmt::format("{}.{}.look", kLeaseDirectory, lease.nonce()));
  Clearing clearing(lease);
  clearing.list([&](const std::string& nonce) { return nonce != lease.nonce(); });
  // Names listed before this look do not belong to a later holder.
  lease.look();
  os::fault_point("takeover.looked", lease.root());
  clearing.clear();
}

}  // namespace

void clear_own(Lease& lease) {
  Clearing clearing(lease);
  clearing.list([&](const std::string& nonce) { return nonce == lease.nonce(); });
  clearing.clear();
}

void take_root(Lease& lease, const RunRequest* run) {
  os::about(lease.root(), [&] {
    if (!lease.is_root_cleared()) os::check_access(lease.root());
    if (run != nullptr && !lease.is_root_cleared()) static_cast<void>(name_of_run(lease.root(), *run));
    lease.hold();
    if (lease.is_root_cleared()) return;
    clear_root(lease);
    lease.set_root_cleared();
  });
}

// Two agreements, so that the work never begins if a rank has already failed.
void commit_step(comm::Communicator& communicator, const char* name, const fs::path& path, comm::Work work) {
  comm::agree(communicator, name, [&] { os::fault_point(name, path); });
  comm::agree_on_root(communicator, name, 0, work);
}

CommitContent make_content(const plan::FileLayout& layout) {
  CommitContent content;
  for (const auto& file : layout.files) content.section_of_file[file.name] = file.section;
  content.manifest.tool = base::tool_version();
  return content;
}

void hold_root(comm::Communicator& communicator, Lease* lease, const RunRequest* run) {
  comm::agree_on_root(communicator, "take the lease of the root", 0, [&] {
    if (lease == nullptr) throw base::internal_error("rank 0 saves into a root without a lease");
    take_root(*lease, run);
  });
}

Commit::Commit(comm::Communicator& communicator, CommitTarget target)
    : communicator_(communicator), target_(std::move(target)) {
  // "a/b/" becomes "a/b": suffixes are appended to the path.
  if (!target_.directory.has_filename()) target_.directory = target_.directory.parent_path();
  std::string partial;
  commit_step(communicator_, "commit.begin", target_.directory, [&] {
    const fs::path& directory = target_.directory;
    if (directory.has_parent_path()) os::make_directory(directory.parent_path());
    Lease* const lease = target_.lease;
    if (lease != nullptr) clear_own(*lease);
    nonce_ = lease != nullptr ? lease->nonce() : os::random_nonce();
    if (lease == nullptr) warn_of_others(target_);
    if (os::is_name_taken(directory)) (void)check_replaceable(directory, target_.may_replace);
    partial_ = partial_directory(directory, nonce_);
    os::remove_at_end(partial_);
    os::make_new_directory(partial_);
    partial = partial_.native();
  });
  communicator_.share(partial, 0);
  comm::agree(communicator_, "commit.begin", [&] { partial_ = partial; });
  if (target_.in_root) return;  // the Checkpointer has checked this for its root
  try {
    check_all_nodes_see(communicator_, partial_);
  } catch (...) {
    remove_unfinished();
    throw;
  }
}

Commit::~Commit() { remove_unfinished(); }

void Commit::remove_unfinished() const noexcept {
  if (communicator_.rank() != 0 || is_done_) return;
  const auto remove = [](const fs::path& path) {
    os::remove_tree(path);
    os::keep_at_end(path);
  };
  try {
    if (!is_visible_) remove(partial_);
    if (target_.in_root) remove(latest_temporary(parent_of(target_.directory), nonce_));
  } catch (const std::exception& error) {
    base::log_warning(fmt::format("the unfinished '{}' could not be removed now ({}); {}", shown(partial_),
                                  error.what(),
                                  target_.in_root ? "the next save removes it" : "remove it when no run writes it"));
  }
}

void Commit::finish(CommitContent content) {
  const bool becomes_latest = target_.in_root && !content.manifest.part;
  step("commit.carry", partial_, [&] {
    for (const auto& [name, stream] : content.carried) {
      const format::ManifestFile written = carry(partial_, name, stream);
      if (target_.read_back != ReadBack::kOff) io::read_back_file(partial_ / name, written.size_bytes, written.crc32c);
      content.manifest.carried_files.push_back(written);
    }
  });
  step("commit.blocks", partial_, [&] {
    const base::Bytes encoded = format::encode_blocks(content.blocks);
    content.manifest.blocks_crc32c = format::crc32c(encoded);
    content.manifest.block_bytes = content.blocks.block_bytes;
    write_file(format::kBlocksFile, encoded);
  });
  step("commit.manifest", partial_, [&] {
    add_data_files(content);
    const std::string text = format::encode_manifest(content.manifest);
    write_file(format::kManifestFile, base::as_bytes(text));
  });
  step("commit.sync", partial_, [&] {
    os::sync_directory(partial_);
    if (!becomes_latest) return;
    const std::string text = fmt::format("{}\n", content.manifest.step);
    const fs::path temporary = latest_temporary(parent_of(target_.directory), nonce_);
    os::remove_at_end(temporary);
    os::write_new_file(temporary, base::as_bytes(text));
  });
  step("commit.rename", partial_, [&] {
    const auto no_end = os::hold_end();
    make_visible();
    is_visible_ = true;
    os::keep_at_end(partial_);
  });
  // The checkpoint is now visible and whole: a failure only leaves its durability unknown.
  after_rename("commit.publish", {"it may not survive a power failure", kNotNamed},
               [&] { os::sync_directory(parent_of(target_.directory)); });
  if (becomes_latest) name_as_latest(content.manifest);
  is_done_ = true;
  if (communicator_.rank() == 0) remove_replaced();
}

/// If another saver has taken over, the error says so instead of naming a missing file.
void Commit::step(const char* name, const fs::path& path, comm::Work work) const {
  commit_step(communicator_, name, path, [&] {
    try {
      work();
    } catch (const Error& error) {
      if (target_.lease != nullptr && error.kind() != ErrorKind::kState) {
        if (const auto lost = target_.lease->lost()) {
          throw Error(ErrorKind::kState, *lost, {0, target_.lease->root().native()});
        }
      }
      throw;
    }
  });
}

void Commit::after_rename(const char* name, const Meaning& means, comm::Work work) const {
  try {
    step(name, target_.directory, work);
  } catch (const Error& error) {
    throw error.with_message(fmt::format("'{}' is complete, but {}: {}", shown(target_.directory),
                                         error.kind() == ErrorKind::kState ? means.of_lost_root : means.of_failure,
                                         error.what()));
  }
}

/// The latest file is for other programs; Cairn finds the checkpoint without it.
void Commit::name_as_latest(const format::Manifest& manifest) const {
  after_rename("commit.latest", {"the file that names the latest could not be replaced", kNotNamed}, [&] {
    const fs::path parent = parent_of(target_.directory);
    look();
    os::fault_point("commit.latest.looked", parent);
    const fs::path temporary = latest_temporary(parent, nonce_);
    try {
      os::rename(temporary, parent / kLatestFile);
    } catch (const Error& error) {
      throw error.with_message(
          fmt::format("{}; loads by Cairn find the checkpoint all the same, other programs take the one that '{}' "
                      "names; put right what has its place, and the next save replaces it",
                      error.what(), kLatestFile));
    }
    os::keep_at_end(temporary);
  });
  constexpr const char* kNotDurable = "the file that names it the latest may not survive a power failure";
  after_rename("commit.noted", {kNotDurable, kNotDurable}, [&] {
    const fs::path parent = parent_of(target_.directory);
    os::sync_directory(parent);
    note_latest(parent, manifest.step, manifest.run_id);
  });
}

void Commit::write_file(const std::string& name, std::span<const std::byte> bytes) const {
  os::write_new_file(partial_ / name, bytes);
  if (target_.read_back != ReadBack::kOff) io::read_back_file(partial_ / name, bytes.size(), format::crc32c(bytes));
}

void Commit::look() const {
  if (target_.lease != nullptr) target_.lease->look();
}

/// Makes the checkpoint visible under a free name.
void Commit::give_name() const {
  switch (os::try_rename(partial_, target_.directory)) {
    case os::Renamed::kDone: return;
    case os::Renamed::kSourceMissing: throw disappeared(partial_);
    case os::Renamed::kTargetExists:
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}' appeared while it was written; nothing was replaced", shown(target_.directory)),
                  {0, target_.directory.native()});
  }
}

/// Steps a to c. After a failure readers find the old directory, under its name or in the container.
void Commit::replace_in_steps() const {
  const fs::path& directory = target_.directory;
  const fs::path container = replaced_directory(directory, nonce_);
  const fs::path old = container / directory.filename();
  os::make_new_directory(container);
  try {
    look();
    os::fault_point("commit.replace.looked", directory);
    const bool is_moved = os::try_rename(directory, old) == os::Renamed::kDone;
    if (!is_moved && os::exists(directory)) throw disappeared(container);
    os::fault_point("commit.replaced", directory);
    give_name();
  } catch (const Error&) {
    try {
      os::try_rename(old, directory);
      if (!os::exists(old)) os::remove_tree(container);
    } catch (const Error& error) {
      base::log_warning(fmt::format("'{}' is now in '{}', where loads find it: {}", shown(directory), shown(container),
                                    error.what()));
    }
    throw;
  }
}

void Commit::set_aside() const {
  const fs::path aside = fmt::format("{}.damaged-{}", target_.directory.string(), os::random_nonce());
  os::rename(target_.directory, aside);
  base::log_warning(fmt::format("'{}' is damaged, and is now called '{}'; remove it when nobody needs it",
                                shown(target_.directory), shown(aside)));
}

void Commit::make_visible() const {
  const fs::path& directory = target_.directory;
  const bool is_new = !os::is_name_taken(directory);
  const Fate fate = is_new ? Fate::kReplaced : check_replaceable(directory, target_.may_replace);
  look();
  os::fault_point("commit.rename.looked", directory);
  if (fate == Fate::kSetAside) set_aside();
  if (is_new || fate == Fate::kSetAside) return give_name();
  if (fate == Fate::kAbandoned) {
    base::log_warning(
        fmt::format("'{}' is replaced: it was abandoned when the run went back to an older step", shown(directory)));
  }
  if (os::exchange(partial_, directory)) return;
  replace_in_steps();
}

/// After an exchange the replaced checkpoint has the partial name, which readers ignore; without an exchange it first
/// gets that name here.
void Commit::remove_replaced() const noexcept {
  try {
    os::try_rename(replaced_directory(target_.directory, nonce_), partial_);
    os::remove_tree(partial_);
  } catch (const std::exception& error) {
    base::log_warning(fmt::format("'{}' is saved, but what it replaced could not be deleted: {}",
                                  shown(target_.directory), error.what()));
  }
}

void Commit::name_new_holder(const Error& error) const {
  // Either all ranks return here or no rank does: their messages are equal, except for errors of MPI itself, which do
  // not name a file.
  if (std::string_view(error.what()).find(shown(partial_)) == std::string_view::npos) return;
  comm::agree_on_root(communicator_, "look for another saver", 0, [&] {
    const auto lost = target_.lease != nullptr ? target_.lease->lost() : std::nullopt;
    if (lost) throw Error(ErrorKind::kState, *lost, {0, target_.lease->root().native()});
  });
}

}  // namespace cairn::root
