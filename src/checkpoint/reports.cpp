#include "checkpoint/reports.hpp"

#include "comm/agree.hpp"
#include "format/safetensors.hpp"

namespace cairn::checkpoint {

Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine) {
  Report report;
  report.engine = engine.name;
  report.engine_reason = engine.reason;
  report.engine_hints = engine.hints;
  report.tensors = written.tensors.size();
  report.files = written.files.size();
  for (const auto& tensor : written.tensors) {
    report.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
  }
  return report;
}

Report report_of_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const EngineChoice& engine,
                      std::span<const plan::MemoryBox> wanted, std::size_t targets) {
  Report report;
  comm::agree(communicator, "report", [&] {
    report.directory = opened.directory;
    report.engine = engine.name;
    report.engine_reason = engine.reason;
    report.engine_hints = engine.hints;
    report.warnings = opened.warnings;
  });
  report.files = opened.stored.files.size();
  report.tensors = communicator.max(targets);
  std::uint64_t bytes = 0;
  for (const plan::MemoryBox& box : wanted) bytes += box.bytes.size();
  report.bytes = communicator.sum(bytes);
  return report;
}

}  // namespace cairn::checkpoint
