// The engine of tests: files in this process (memory_store.hpp), the same rounds, agreements and fault hooks as others.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"

namespace cairn::io {

class MemoryEngine final : public Engine {
 public:
  /// Throws Error(kUsage) for several MPI ranks: they share no memory.
  explicit MemoryEngine(comm::Communicator& communicator);

  [[nodiscard]] std::string_view name() const override { return "memory"; }
  void open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void write_round(std::span<const WriteOp> ops) override;
  void read_round(std::span<const ReadOp> ops) override;
  void sync() override;
  void close() override;

 private:
  void begin(std::vector<EngineFile> files, const plan::ExtentMap& extents);

  comm::Communicator& communicator_;
  std::vector<EngineFile> files_;
  std::vector<std::uint32_t> kept_;  ///< files that this rank creates and checks
};

}  // namespace cairn::io
