#include "io/memory_engine.hpp"

#include <cstring>
#include <string>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "io/file_turns.hpp"
#include "io/memory_store.hpp"
#include "io/round_check.hpp"
#include "os/fault.hpp"

namespace cairn::io {
namespace {

/// Throws what a fault rule asks for; true when it asks for a lie.
bool fail_if_told(const char* operation, const EngineFile& file) {
  const auto fault = os::check_fault(operation, file.path);
  if (!fault || fault->lies) return fault.has_value();
  const std::string what =
      std::string("cannot ") + operation + " '" + base::printable(file.path.string()) + "' in memory: ";
  throw Error(ErrorKind::kIo, what + (fault->short_bytes ? "MPI moved " + std::to_string(*fault->short_bytes) + " bytes"
                                                         : std::string(std::strerror(fault->error))));
}

}  // namespace

MemoryEngine::MemoryEngine(comm::Communicator& communicator) : communicator_(communicator) {
  if (communicator.size() > 1 && comm::native_handle(communicator) != MPI_COMM_NULL) {
    throw Error(ErrorKind::kUsage, "engine 'memory' is for tests in one process; " +
                                       std::to_string(communicator.size()) +
                                       " MPI ranks share no memory, use engine 'mpiio'");
  }
}

void MemoryEngine::begin(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  if (!files_.empty()) throw Error(ErrorKind::kInternal, "engine 'memory' was opened twice");
  files_ = std::move(files);
  const auto count = base::narrow<std::uint32_t>(files_.size(), "number of files");
  for (std::uint32_t file = 0; file < count; ++file) {
    if (keeper_of_file(extents, file, communicator_.size()) == communicator_.rank()) kept_.push_back(file);
  }
}

void MemoryEngine::open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  begin(std::move(files), extents);
  comm::agree(communicator_, "create data files", [&] {
    for (const std::uint32_t number : kept_) {
      fail_if_told("open", files_[number]);
      MemoryStore::global().create(files_[number].path, files_[number].size_bytes);
    }
  });
}

void MemoryEngine::open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  begin(std::move(files), extents);
  comm::agree(communicator_, "open data files", [&] {
    for (const std::uint32_t number : kept_) {
      const EngineFile& file = files_[number];
      fail_if_told("open", file);
      const std::uint64_t found = MemoryStore::global().size_bytes(file.path);
      if (found == file.size_bytes) continue;
      throw Error(ErrorKind::kIntegrity, "cannot read '" + base::printable(file.path.string()) +
                                             "' in memory: it has " + std::to_string(found) + " bytes, expected " +
                                             std::to_string(file.size_bytes));
    }
  });
}

void MemoryEngine::write_round(std::span<const WriteOp> ops) {
  comm::agree(communicator_, "write data files", [&] {
    check_round(ops, std::span<const EngineFile>(files_));
    for (const WriteOp& op : ops) {
      const bool lies = fail_if_told("write", files_[op.file]);
      const auto kept = lies ? op.data.first(os::half_of(op.data.size())) : op.data;
      MemoryStore::global().write(files_[op.file].path, op.offset, kept);
    }
  });
}

void MemoryEngine::read_round(std::span<const ReadOp> ops) {
  comm::agree(communicator_, "read data files", [&] {
    check_round(ops, std::span<const EngineFile>(files_));
    for (const ReadOp& op : ops) {
      fail_if_told("read", files_[op.file]);
      MemoryStore::global().read(files_[op.file].path, op.offset, op.data);
    }
  });
}

void MemoryEngine::sync() {
  comm::agree(communicator_, "sync data files", [&] {
    for (const std::uint32_t number : kept_) {
      const EngineFile& file = files_[number];
      fail_if_told("fsync", file);
      const std::uint64_t found = MemoryStore::global().size_bytes(file.path);
      if (found == file.size_bytes) continue;
      throw Error(ErrorKind::kIo, "after writing, '" + base::printable(file.path.string()) + "' in memory has " +
                                      std::to_string(found) + " bytes, expected " + std::to_string(file.size_bytes));
    }
  });
}

void MemoryEngine::close() { communicator_.barrier(); }

}  // namespace cairn::io
