#include "directory/commit.hpp"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "base/version.hpp"
#include "cairn/error.hpp"
#include "directory/read_back_file.hpp"
#include "directory/root.hpp"
#include "directory/root_state.hpp"
#include "directory/takeover.hpp"
#include "format/crc32c.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"
#include "os/process.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string shown(const fs::path& path) { return base::printable(path.string(), 1000); }

fs::path parent_of(const fs::path& directory) {
  return directory.has_parent_path() ? directory.parent_path() : fs::path(".");
}

void look(const Commit& commit) {
  if (commit.target.lease != nullptr) commit.target.lease->look();
}

/// Throws for a directory of the name that must stay.
void check_replaceable(const CommitTarget& target) {
  if (target.overwrite || (target.may_replace && target.may_replace(target.directory))) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}' exists already; choose another name, or remove it, or allow overwriting",
                          shown(target.directory)));
}

/// Another run of ours is writing there, or was cut off: only people know which.
void warn_of_others(const CommitTarget& target) {
  for (const auto& entry : os::list_directory(parent_of(target.directory))) {
    const std::string name = target.directory.filename().string() + '.';
    if (!entry.is_directory || !entry.name.starts_with(name) || !entry.name.ends_with(kPartialSuffix)) continue;
    base::log_warning(
        fmt::format("'{}' is of another run that writes '{}', or was left by one; remove it when no other run "
                    "is alive",
                    shown(parent_of(target.directory) / entry.name), shown(target.directory)));
  }
}

/// The rename that makes the checkpoint visible, where nothing has the name.
void give_name(const Commit& commit) {
  switch (os::try_rename(commit.partial, commit.target.directory)) {
    case os::Renamed::kDone: return;
    case os::Renamed::kSourceMissing:
      throw Error(ErrorKind::kIo, fmt::format("'{}' has disappeared while it was written: another program removed or "
                                              "renamed it",
                                              shown(commit.partial)));
    case os::Renamed::kTargetExists:
      throw Error(ErrorKind::kUsage, fmt::format("'{}' has come into being while it was written; nothing was replaced",
                                                 shown(commit.target.directory)));
  }
}

/// Steps a to c. When it throws, the old directory has its name, or waits where readers find it.
void replace_in_steps(const Commit& commit) {
  const fs::path& directory = commit.target.directory;
  const fs::path container = replaced_directory(directory, commit.nonce);
  const fs::path old = container / directory.filename();
  os::make_new_directory(container);
  try {
    look(commit);
    os::fault_point("commit.replace.looked", directory);
    const bool is_moved = os::try_rename(directory, old) == os::Renamed::kDone;
    if (!is_moved && os::exists(directory)) {
      throw Error(ErrorKind::kIo, fmt::format("'{}' has disappeared while it was written: another program removed or "
                                              "renamed it",
                                              shown(container)));
    }
    os::fault_point("commit.replaced", directory);
    give_name(commit);
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

void make_visible(const Commit& commit) {
  const fs::path& directory = commit.target.directory;
  const bool is_new = !os::exists(directory);
  if (!is_new) check_replaceable(commit.target);
  look(commit);
  os::fault_point("commit.rename.looked", directory);
  if (is_new) return give_name(commit);
  if (os::exchange(commit.partial, directory)) return;
  replace_in_steps(commit);
}

/// What was replaced: under the name of the partial directory after an exchange, else moved there. Readers know neither.
void remove_replaced(const Commit& commit) noexcept {
  try {
    os::try_rename(replaced_directory(commit.target.directory, commit.nonce), commit.partial);
    os::remove_tree(commit.partial);
  } catch (const std::exception& error) {
    base::log_warning(fmt::format("'{}' is saved, but what it replaced could not be deleted: {}",
                                  shown(commit.target.directory), error.what()));
  }
}

/// Writes a carried file piece by piece, and gives what the manifest says of it.
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

void add_data_files(CommitContent& content) {
  for (const auto& file : content.blocks.files) {
    content.manifest.data_files.push_back({file.name, content.section_of_file.at(file.name), file.size_bytes,
                                           format::file_digest(file, content.blocks.block_bytes)});
  }
}

}  // namespace

// Two agreements, so that the work never begins when some rank has already failed.
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

void hold_root(comm::Communicator& communicator, Lease* lease) {
  comm::agree_on_root(communicator, "take the lease of the root", 0, [&] {
    if (lease == nullptr) throw Error(ErrorKind::kInternal, "rank 0 saves into a root without a lease");
    lease->hold();
    if (lease->is_root_cleared()) return;
    clear_root(*lease);
    lease->set_root_cleared();
  });
}

Commit begin_commit(comm::Communicator& communicator, CommitTarget target) {
  // "a/b/" is "a/b": names are made of it.
  if (!target.directory.has_filename()) target.directory = target.directory.parent_path();
  Commit commit;
  commit.target = std::move(target);
  std::string partial;
  commit_step(communicator, "commit.begin", commit.target.directory, [&] {
    const fs::path& directory = commit.target.directory;
    if (directory.has_parent_path()) os::make_directory(directory.parent_path());
    Lease* const lease = commit.target.lease;
    if (lease != nullptr) clear_own(*lease);
    commit.nonce = lease != nullptr ? lease->nonce() : os::random_nonce();
    if (lease == nullptr) warn_of_others(commit.target);
    if (os::exists(directory)) check_replaceable(commit.target);
    commit.partial = partial_directory(directory, commit.nonce);
    os::remove_at_end(commit.partial);
    os::make_new_directory(commit.partial);
    partial = commit.partial.native();
  });
  communicator.share(partial, 0);
  comm::agree(communicator, "commit.begin", [&] { commit.partial = partial; });
  return commit;
}

void finish_commit(comm::Communicator& communicator, Commit& commit, CommitContent content) {
  const CommitTarget& target = commit.target;
  const fs::path& partial = commit.partial;
  // A step that fails because another saver has taken over says so, and not that a file is missing.
  const auto step = [&](const char* name, const fs::path& path, comm::Work work) {
    commit_step(communicator, name, path, [&] {
      try {
        work();
      } catch (const Error& error) {
        if (target.lease != nullptr && error.kind() != ErrorKind::kState) {
          if (const auto lost = target.lease->lost()) throw Error(ErrorKind::kState, *lost);
        }
        throw;
      }
    });
  };
  const bool reads_back = target.read_back != ReadBack::kOff;
  const auto write = [&](const std::string& name, std::span<const std::byte> bytes) {
    os::write_new_file(partial / name, bytes);
    if (reads_back) read_back_file(partial / name, bytes.size(), format::crc32c(bytes));
  };
  step("commit.carry", partial, [&] {
    for (const auto& [name, stream] : content.carried) {
      const format::ManifestFile written = carry(partial, name, stream);
      if (reads_back) read_back_file(partial / name, written.size_bytes, written.crc32c);
      content.manifest.carried_files.push_back(written);
    }
  });
  step("commit.blocks", partial, [&] {
    const base::Bytes encoded = format::encode_blocks(content.blocks);
    content.manifest.blocks_crc32c = format::crc32c(encoded);
    content.manifest.block_bytes = content.blocks.block_bytes;
    write(kBlocksFile, encoded);
  });
  step("commit.manifest", partial, [&] {
    add_data_files(content);
    const std::string text = format::encode_manifest(content.manifest);
    write(kManifestFile, base::as_bytes(text));
  });
  step("commit.sync", partial, [&] {
    os::sync_directory(partial);
    if (!target.in_root) return;
    const std::string text = fmt::format("{}\n", content.manifest.step);
    const fs::path temporary = latest_temporary(parent_of(target.directory), commit.nonce);
    os::remove_at_end(temporary);
    os::write_new_file(temporary, base::as_bytes(text));
  });
  step("commit.rename", partial, [&] {
    const auto no_end = os::hold_end();
    make_visible(commit);
    commit.is_visible = true;
    os::keep_at_end(partial);
  });

  // From here on the checkpoint is visible and whole; what fails is only our knowledge of its durability.
  const auto after_rename = [&](const char* name, comm::Work work) {
    try {
      step(name, target.directory, work);
    } catch (const Error& error) {
      const char* what = error.kind() == ErrorKind::kState
                             ? "is complete, but the file that names the latest was not written"
                             : "is complete, but it may not survive a power failure";
      throw Error(error.kind(), fmt::format("'{}' {}: {}", shown(target.directory), what, error.what()));
    }
  };
  after_rename("commit.publish", [&] { os::sync_directory(parent_of(target.directory)); });
  if (target.in_root) {
    after_rename("commit.latest", [&] {
      const fs::path parent = parent_of(target.directory);
      look(commit);
      os::fault_point("commit.latest.looked", parent);
      const fs::path temporary = latest_temporary(parent, commit.nonce);
      os::rename(temporary, parent / kLatestFile);
      os::keep_at_end(temporary);
      os::sync_directory(parent);
      note_latest(parent, content.manifest.step);
    });
  }
  if (communicator.rank() == 0) remove_replaced(commit);
}

void name_new_holder(comm::Communicator& communicator, const Commit& commit, const Error& error) {
  // All ranks have the same text, so all are here or none: an error of MPI itself, which only some may have, names no file.
  if (std::string_view(error.what()).find(shown(commit.partial)) == std::string_view::npos) return;
  comm::agree_on_root(communicator, "look for another saver", 0, [&] {
    const auto lost = commit.target.lease != nullptr ? commit.target.lease->lost() : std::nullopt;
    if (lost) throw Error(ErrorKind::kState, *lost);
  });
}

void abandon(const Commit& commit) noexcept {
  const auto remove = [](const fs::path& path) {
    os::remove_tree(path);
    os::keep_at_end(path);
  };
  try {
    if (!commit.is_visible) remove(commit.partial);
    if (commit.target.in_root) remove(latest_temporary(parent_of(commit.target.directory), commit.nonce));
  } catch (const std::exception& error) {
    base::log_warning(
        fmt::format("the unfinished '{}' could not be removed now ({}); {}", shown(commit.partial), error.what(),
                    commit.target.in_root ? "the next save removes it" : "remove it when no run writes it"));
  }
}

}  // namespace cairn::checkpoint
