// Each rank's own extents as hyperslabs through HDF5: the plain files are external raw data of datasets in memory.
//
// Files are made, sized, fsynced and checked as by the engine "posix", whose descriptors are open from before the first
// write, so that every late error reaches the fsync. Nothing is collective between two agreements: parallel HDF5 hangs when a
// collective write fails on one rank, and cannot do so here.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "hdf5/external_files.hpp"
#include "io/engine.hpp"
#include "io/posix_engine.hpp"

namespace cairn::io {

class Hdf5Engine final : public PosixEngine {
 public:
  /// Throws Error(kUsage) in a build without HDF5.
  Hdf5Engine(comm::Communicator& communicator, const EngineOptions& options) : PosixEngine(communicator, options) {}

  [[nodiscard]] std::string_view name() const override { return "hdf5"; }
  void open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void write_round(std::span<const WriteOp> ops) override;
  void read_round(std::span<const ReadOp> ops) override;

 private:
  void add_external_files();

  hdf5::ExternalFiles external_;  ///< this rank's files, by their places
};

}  // namespace cairn::io
