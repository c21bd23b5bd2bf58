#include "checkpoint/data_writer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "io/straight_io.hpp"
#include "os/fault.hpp"

namespace cairn::checkpoint {
namespace {

/// A window that did not get what it should have.
struct WrongWindow {
  std::uint64_t round = 0;
  std::uint64_t arrived_bytes = 0;
  std::uint64_t expected_bytes = 0;
};

/// This rank's share of the headers.
std::vector<io::WriteOp> header_ops(const plan::FileLayout& layout, std::span<const plan::Extent> extents) {
  std::vector<io::WriteOp> ops;
  for (const plan::Extent& extent : extents) {
    const std::string& header = layout.files[extent.file].header;
    if (extent.begin >= header.size()) continue;
    const std::uint64_t end = std::min<std::uint64_t>(extent.end, header.size());
    ops.push_back({extent.file, extent.begin, base::as_bytes(header).subspan(extent.begin, end - extent.begin)});
  }
  return ops;
}

}  // namespace

format::BlockTable write_data(comm::Communicator& communicator, io::Engine& engine,
                              const std::filesystem::path& directory, const WriteJob& job, const FillWindow& fill,
                              Call& call) {
  call.begin("open");
  std::vector<io::EngineFile> files;
  std::vector<io::EngineFile> files_of_engine;
  std::optional<format::BlockAccumulator> table_of_sums;
  // All that the rounds need is made here: between them nothing may fail on one rank alone.
  std::vector<io::WriteOp> ops;
  std::vector<io::WriteOp> headers;
  std::optional<WrongWindow> wrong;
  comm::agree(communicator, "make room for checksums", [&] {
    os::fault_memory("memory.checksums");
    ops.reserve(most_parts(job.windows));
    headers = header_ops(job.layout, job.extents.of(communicator.rank()));
    files = engine_files(directory, job.layout.stored);
    files_of_engine = files;
    table_of_sums.emplace(file_sizes(job.layout.stored), job.extents.grain_bytes());
  });
  format::BlockAccumulator& checksums = *table_of_sums;
  engine.open_for_write(std::move(files_of_engine), job.extents);

  const auto add = [&](const std::vector<io::WriteOp>& written) {
    for (const io::WriteOp& op : written) {
      checksums.add(op.file, op.offset, op.data);
      call.add_bytes(op.data.size());
    }
  };
  if (job.straight != nullptr) {
    call.begin("checksum");  // every rank has the same phases, in the same order
    call.begin("write");
    io::write_straight(communicator, files, *job.straight, job.memory,
                       [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
                         call.add_bytes(data.size());
                         call.begin("checksum");
                         checksums.add(file, offset, data);
                         call.add_bytes(data.size());
                         call.begin("write");
                       });
  }
  // What arrived is checked by every rank in every round, and agreed on once: a round less of waiting for each other.
  for (std::uint64_t round = 0; round < job.rounds; ++round) {
    report_progress("writing", job.extents.total_bytes() * round / job.rounds, job.extents.total_bytes());
    const io::WindowBuffer window = job.buffers.of(job.windows, round);
    call.begin("write");
    engine.wait_rounds(io::WindowPool::kAhead);  // of which the buffer of this round was the last
    call.begin("exchange");
    const std::uint64_t arrived = fill(round, window);
    call.add_bytes(arrived);
    engine.finish_rounds(io::WindowPool::kAhead);  // all ranks come from the exchange: nobody waits long
    put_write_ops(
        window, [&](std::uint32_t file) { return job.layout.files[file].header.size(); }, ops);
    std::uint64_t expected = 0;
    for (const io::WriteOp& op : ops) expected += op.data.size();
    if (arrived != expected && !wrong) wrong = WrongWindow{round, arrived, expected};
    call.begin("checksum");
    add(ops);
    call.begin("write");
    engine.begin_write(ops);
    for (const io::WriteOp& op : ops) call.add_bytes(op.data.size());
  }
  call.begin("checksum");
  add(headers);
  call.begin("write");
  engine.finish_rounds(0);
  comm::agree(communicator, "exchange", [&] {
    if (!wrong) return;
    throw Error(ErrorKind::kInternal, fmt::format("{} bytes arrived for window {} of {} data bytes",
                                                  wrong->arrived_bytes, wrong->round, wrong->expected_bytes));
  });
  engine.write_round(headers);
  call.begin("fsync");
  report_progress("fsync", job.extents.total_bytes(), job.extents.total_bytes());
  engine.sync();
  engine.close();

  call.begin("checksum");
  communicator.all_reduce(checksums.raw_words(), comm::ReduceOp::kXor);
  format::BlockTable table;
  comm::agree(communicator, "finish the checksums", [&] {
    std::vector<std::string> names;
    for (const auto& file : job.layout.files) names.push_back(file.name);
    table = checksums.finish(names);
  });
  call.stop();
  return table;
}

}  // namespace cairn::checkpoint
