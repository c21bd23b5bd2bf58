#include "io/hdf5_engine.hpp"

#include <utility>

#include "comm/agree.hpp"
#include "io/round_check.hpp"
#include "os/record.hpp"

namespace cairn::io {

void Hdf5Engine::add_external_files() {
  comm::agree(communicator(), "open data files", [&] {
    for (const std::uint32_t file : my_files()) external_.add(files()[file].path, files()[file].size_bytes);
  });
}

void Hdf5Engine::open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  PosixEngine::open_for_write(std::move(files), extents);
  add_external_files();
}

void Hdf5Engine::open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) {
  PosixEngine::open_for_read(std::move(files), extents);
  add_external_files();
}

void Hdf5Engine::write_round(std::span<const WriteOp> ops) {
  comm::agree(communicator(), "write data files", [&] {
    check_round(ops, files());
    for (const WriteOp& op : ops) {
      const std::int64_t begin_ns = os::begin_record();
      external_.write_at(place_of(op.file), op.data, op.offset);
      os::record("write", files()[op.file].path, begin_ns);
    }
  });
}

void Hdf5Engine::read_round(std::span<const ReadOp> ops) {
  comm::agree(communicator(), "read data files", [&] {
    check_round(ops, files());
    for (const ReadOp& op : ops) external_.read_at(place_of(op.file), op.data, op.offset);
  });
}

}  // namespace cairn::io
