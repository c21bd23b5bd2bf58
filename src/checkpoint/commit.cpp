#include "checkpoint/commit.hpp"

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/root.hpp"
#include "checkpoint/version.hpp"
#include "comm/agree.hpp"
#include "format/crc32c.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Where the old directory waits while a file system without an atomic exchange replaces it.
fs::path replaced_directory(const fs::path& directory) { return directory.string() + ".replaced"; }

void remove_stale(const CommitTarget& target) {
  const fs::path replaced = replaced_directory(target.directory);
  if (os::exists(replaced)) {
    // A crash in the middle of replacing: the old checkpoint is the last one that was committed.
    if (os::exists(target.directory)) {
      os::remove_tree(replaced);
    } else {
      os::rename(replaced, target.directory);
    }
  }
  os::remove_tree(partial_directory(target.directory));
  if (!target.in_root) return;
  for (const fs::path& stale : partial_directories(target.directory.parent_path())) os::remove_tree(stale);
}

void make_visible(const CommitTarget& target) {
  const fs::path partial = partial_directory(target.directory);
  if (!os::exists(target.directory)) {
    os::rename(partial, target.directory);
  } else if (os::exchange(partial, target.directory)) {
    os::remove_tree(partial);
  } else {
    const fs::path replaced = replaced_directory(target.directory);
    os::rename(target.directory, replaced);
    os::rename(partial, target.directory);
    os::remove_tree(replaced);
  }
}

void add_files(CommitContent& content) {
  for (const auto& file : content.blocks.files) {
    content.manifest.data_files.push_back({file.name, content.section_of_file.at(file.name), file.size_bytes,
                                           format::file_digest(file, content.blocks.block_bytes)});
  }
  for (const auto& [name, bytes] : content.carried) {
    content.manifest.carried_files.push_back({name, "", bytes.size(), format::crc32c(bytes)});
  }
}

}  // namespace

// Two agreements, so that the work never begins when some rank has already failed.
void commit_step(comm::Communicator& communicator, const char* name, const fs::path& path,
                 const std::function<void()>& work) {
  comm::agree(communicator, name, [&] { os::fault_point(name, path); });
  comm::agree_on_root(communicator, name, 0, work);
}

CommitContent make_content(const plan::FileLayout& layout) {
  CommitContent content;
  for (const auto& file : layout.files) content.section_of_file[file.name] = file.section;
  content.manifest.tool = tool_version();
  return content;
}

void begin_commit(comm::Communicator& communicator, const CommitTarget& target) {
  commit_step(communicator, "commit.begin", target.directory, [&] {
    if (target.directory.has_parent_path()) os::make_directory(target.directory.parent_path());
    remove_stale(target);
    if (os::exists(target.directory) && !target.overwrite) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}' exists already; choose another name, or remove it, or allow overwriting",
                              base::printable(target.directory.string())));
    }
    os::make_new_directory(partial_directory(target.directory));
  });
}

void finish_commit(comm::Communicator& communicator, const CommitTarget& target, CommitContent content) {
  const fs::path partial = partial_directory(target.directory);
  const fs::path parent = target.directory.has_parent_path() ? target.directory.parent_path() : fs::path(".");
  commit_step(communicator, "commit.carry", partial, [&] {
    for (const auto& [name, bytes] : content.carried) os::write_new_file(partial / name, bytes);
  });
  commit_step(communicator, "commit.blocks", partial, [&] {
    const base::Bytes encoded = format::encode_blocks(content.blocks);
    content.manifest.blocks_crc32c = format::crc32c(encoded);
    content.manifest.block_bytes = content.blocks.block_bytes;
    os::write_new_file(partial / kBlocksFile, encoded);
  });
  commit_step(communicator, "commit.manifest", partial, [&] {
    add_files(content);
    const std::string text = format::encode_manifest(content.manifest);
    os::write_new_file(partial / kManifestFile, base::as_bytes(text));
  });
  commit_step(communicator, "commit.sync", partial, [&] { os::sync_directory(partial); });
  commit_step(communicator, "commit.rename", partial, [&] { make_visible(target); });

  // From here on the checkpoint is visible and whole; what fails is only our knowledge of its durability.
  const auto after_rename = [&](const char* name, const std::function<void()>& work) {
    try {
      commit_step(communicator, name, target.directory, work);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("'{}' is complete, but it may not survive a power failure: {}",
                                            base::printable(target.directory.string()), error.what()));
    }
  };
  after_rename("commit.publish", [&] { os::sync_directory(parent); });
  if (!target.in_root) return;
  after_rename("commit.latest", [&] {
    const std::string text = fmt::format("{}\n", content.manifest.step);
    os::replace_file(parent / kLatestFile, base::as_bytes(text));
  });
}

void abandon(const CommitTarget& target) noexcept {
  try {
    os::remove_tree(partial_directory(target.directory));
  } catch (const std::exception& error) {
    base::log_warning(fmt::format("the unfinished '{}' could not be removed now ({}); the next save removes it",
                                  base::printable(partial_directory(target.directory).string()), error.what()));
  }
}

}  // namespace cairn::checkpoint
