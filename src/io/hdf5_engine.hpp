// Each rank's own extents as hyperslabs through HDF5: the plain files are external raw data of datasets in memory.
//
// Files are made, sized, fsynced and checked by the engine "posix", whose descriptors are open from before the first write,
// so that every late error reaches the fsync. Nothing is collective between two agreements: parallel HDF5 hangs when a
// collective write fails on one rank, and cannot do so here.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "hdf5/external_files.hpp"
#include "io/engine.hpp"
#include "io/posix_engine.hpp"

namespace cairn::io {

class Hdf5Engine final : public Engine {
 public:
  /// Throws Error(kUsage) in a build without HDF5.
  Hdf5Engine(comm::Communicator& communicator, const EngineOptions& options);

  [[nodiscard]] std::string_view name() const override { return "hdf5"; }
  void open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void write_round(std::span<const WriteOp> ops) override;
  void read_round(std::span<const ReadOp> ops) override;
  void sync() override;
  void close() override;

 private:
  void add_files(const plan::ExtentMap& extents);
  std::size_t number_of(std::uint32_t file) const;

  comm::Communicator& communicator_;
  PosixEngine files_on_disk_;
  std::vector<EngineFile> files_;
  hdf5::ExternalFiles external_;
  std::map<std::uint32_t, std::size_t> numbers_;  ///< of this rank's files in external_
};

}  // namespace cairn::io
