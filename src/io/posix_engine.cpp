#include "io/posix_engine.hpp"

#include <algorithm>
#include <string>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/file_turns.hpp"

namespace cairn::io {
namespace {

/// Throws unless the file has the expected size; `when` begins the sentence.
void check_size(const EngineFile& file, const char* when, ErrorKind kind) {
  const std::uint64_t found = os::file_size(file.path);
  if (found == file.size_bytes) return;
  throw Error(kind, std::string(when) + " '" + base::printable(file.path.string()) + "' has " + std::to_string(found) +
                        " bytes, expected " + std::to_string(file.size_bytes));
}

}  // namespace

void PosixEngine::begin(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  if (!files_.empty()) throw Error(ErrorKind::kInternal, "engine '" + std::string(name()) + "' was opened twice");
  files_ = std::move(files);
  const auto count = base::narrow<std::uint32_t>(files_.size(), "number of files");
  for (std::uint32_t file = 0; file < count; ++file) {
    if (keeper_of_file(extents, file, communicator_.size()) == communicator_.rank()) kept_.push_back(file);
  }
  for (const plan::Extent& extent : extents.of(communicator_.rank())) {
    if (mine_.empty() || mine_.back() != extent.file) mine_.push_back(extent.file);
  }
  descriptors_.resize(mine_.size());
}

std::size_t PosixEngine::place_of(std::uint32_t file) const {
  const auto at = std::lower_bound(mine_.begin(), mine_.end(), file);
  if (at == mine_.end() || *at != file) {
    throw Error(ErrorKind::kInternal, "I/O round: file " + std::to_string(file) + " is not this rank's");
  }
  return static_cast<std::size_t>(at - mine_.begin());
}

/// All files lie in one directory. In memory, reserving would be half of the work of writing, done by one rank while the
/// others wait: there the free space is compared.
void PosixEngine::look_at_storage() {
  if (files_.empty()) return;
  const auto folder = files_.front().path.parent_path();
  const os::FileSystemInfo storage = os::file_system_of(folder.empty() ? "." : folder);
  writes_to_memory_ = storage.lives_in_memory();
  if (!writes_to_memory_ || !reserve_space_) return;
  std::uint64_t needed = 0;
  for (const EngineFile& file : files_) needed = base::add(needed, file.size_bytes, "bytes of all files");
  if (needed <= storage.free_bytes) return;
  throw Error(ErrorKind::kIo, "cannot write '" + base::printable(files_.front().path.string()) +
                                  "': No space left on device: " + base::format_size(needed) +
                                  " are to be written, and " + base::format_size(storage.free_bytes) + " are free");
}

void PosixEngine::open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  comm::agree(communicator_, "create data files", [&] {
    begin(std::move(files), extents);
    look_at_storage();
    for (const std::uint32_t number : kept_) {
      const EngineFile& file = files_[number];
      os::File created = os::create_striped(file.path, striping_);
      created.set_size(file.size_bytes);
      // Where it is not supported, the writes tell that there is no space.
      if (reserve_space_ && !writes_to_memory_) created.reserve(file.size_bytes);
      const bool is_mine = std::binary_search(mine_.begin(), mine_.end(), number);
      if (!is_mine) created.sync();  // nobody will write and sync it
      created.close();
    }
  });
  comm::agree(communicator_, "open data files", [&] {
    for (std::size_t i = 0; i < mine_.size(); ++i)
      descriptors_[i] = os::File(files_[mine_[i]].path, os::OpenMode::kWrite);
  });
}

void PosixEngine::open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  comm::agree(communicator_, "open data files", [&] {
    begin(std::move(files), extents);
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      check_size(files_[mine_[i]], "cannot read:", ErrorKind::kIntegrity);
      descriptors_[i] = os::File(files_[mine_[i]].path, os::OpenMode::kRead);
    }
    for (const std::uint32_t number : kept_) check_size(files_[number], "cannot read:", ErrorKind::kIntegrity);
  });
}

void PosixEngine::sync() {
  comm::agree(communicator_, "sync data files", [&] {
    for (os::File& file : descriptors_) file.sync();
    for (const std::uint32_t number : kept_) check_size(files_[number], "after writing,", ErrorKind::kIo);
  });
}

void PosixEngine::close() {
  comm::agree(communicator_, "close data files", [&] {
    for (os::File& file : descriptors_) file.close();
  });
}

}  // namespace cairn::io
