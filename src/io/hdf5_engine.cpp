#include "io/hdf5_engine.hpp"

#include <string>
#include <utility>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/round_check.hpp"

namespace cairn::io {

Hdf5Engine::Hdf5Engine(comm::Communicator& communicator, const EngineOptions& options)
    : communicator_(communicator), files_on_disk_(communicator, options) {}

void Hdf5Engine::add_files(const plan::ExtentMap& extents) {
  comm::agree(communicator_, "open data files", [&] {
    for (const plan::Extent& extent : extents.of(communicator_.rank())) {
      if (numbers_.contains(extent.file)) continue;
      const EngineFile& file = files_[extent.file];
      numbers_[extent.file] = external_.add(file.path, file.size_bytes);
    }
  });
}

std::size_t Hdf5Engine::number_of(std::uint32_t file) const {
  const auto at = numbers_.find(file);
  if (at == numbers_.end()) {
    throw Error(ErrorKind::kInternal, "I/O round: file " + std::to_string(file) + " is not this rank's");
  }
  return at->second;
}

void Hdf5Engine::open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  files_ = files;
  files_on_disk_.open_for_write(std::move(files), extents);
  add_files(extents);
}

void Hdf5Engine::open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  files_ = files;
  files_on_disk_.open_for_read(std::move(files), extents);
  add_files(extents);
}

void Hdf5Engine::write_round(std::span<const WriteOp> ops) {
  comm::agree(communicator_, "write data files", [&] {
    check_round(ops, std::span<const EngineFile>(files_));
    for (const WriteOp& op : ops) external_.write_at(number_of(op.file), op.data, op.offset);
  });
}

void Hdf5Engine::read_round(std::span<const ReadOp> ops) {
  comm::agree(communicator_, "read data files", [&] {
    check_round(ops, std::span<const EngineFile>(files_));
    for (const ReadOp& op : ops) external_.read_at(number_of(op.file), op.data, op.offset);
  });
}

void Hdf5Engine::sync() { files_on_disk_.sync(); }

void Hdf5Engine::close() { files_on_disk_.close(); }

}  // namespace cairn::io
