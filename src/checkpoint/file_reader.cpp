#include "checkpoint/file_reader.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/progress.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/blocks.hpp"

namespace cairn::checkpoint {

void FileReader::open(const std::string& engine, const io::Hints& hints) {
  std::vector<io::EngineFile> files_of_engine;
  io::EngineOptions options;
  comm::agree(communicator_, "plan the load", [&] {
    options.hints = hints;
    options.bounce_buffer = job_.buffers.bounce_buffer();
    ops_.reserve(most_parts(job_.windows));
    files_ = engine_files(job_.checkpoint);
    const std::vector<int>& readers = job_.checkpoint.reader_of_file;
    for (std::size_t file = 0; file < readers.size(); ++file) {
      if (readers[file] != communicator_.rank()) files_[file].path.clear();
    }
    files_of_engine = files_;
    bypass_files_.emplace(files_);
  });
  engine_ = io::make_engine_on_all(engine, communicator_, std::move(options));
  engine_->open_for_read(std::move(files_of_engine), job_.extents);
}

void FileReader::read_bypass(const BypassRead& bypass, const opening::WrittenBlocks& written,
                             const io::BypassMemory& memory, Call& call) {
  if (bypass.ranges.empty()) return;
  const std::uint64_t block_bytes = job_.extents[0].block_bytes();
  std::optional<format::BlockAccumulator> checksums;
  comm::agree(communicator_, "plan the load",
              [&] { checksums.emplace(file_sizes(job_.checkpoint.stored.files_alone()), block_bytes); });
  call.begin("read");
  if (written.has_any()) call.begin("verify");  // the same phases in the same order on every rank
  call.begin("read");
  std::uint64_t bytes = 0;
  for (const plan::FileRange& range : bypass.ranges) bytes += range.end - range.begin;
  const std::uint64_t before = done_bytes_;
  std::uint64_t done = 0;
  const std::uint64_t mine = bypass.runs.bytes();
  io::read_bypass(communicator_, *bypass_files_, bypass.runs, memory,
                  [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
                    report_progress("reading", before + share_of_bytes(bytes, done, mine), total_bytes_);
                    done += data.size();
                    call.add_bytes(data.size());
                    if (!written.has_any()) return;
                    call.begin("verify");
                    checksums->add(file, offset, data);
                    call.add_bytes(data.size());
                    call.begin("read");
                  });
  done_bytes_ = before + bytes;
  if (!written.has_any()) return;
  call.begin("verify");
  communicator_.all_reduce(checksums->raw_words(), comm::ReduceOp::kXor);
  comm::agree(communicator_, "verify", [&] {
    for (const plan::FileRange& range : bypass.ranges) {
      for (std::uint64_t begin = range.begin; begin < range.end; begin += block_bytes) {
        const plan::FileRange block{range.file, begin, std::min(begin + block_bytes, range.end)};
        written.check(block, checksums->crc_of(block.file, begin / block_bytes));
      }
    }
  });
}

void FileReader::read_ahead() {
  for (std::uint64_t round = 0; round < std::min<std::uint64_t>(job_.rounds, io::WindowPool::kAhead); ++round) {
    begin(round);
    // The disk of a node gets the requests for all windows of this round before those of the next round, since no rank
    // can continue without the other ranks' windows.
    job_.buffers.barrier();
  }
}

io::WindowBuffer FileReader::wait_for_window(std::uint64_t round) {
  report_progress("reading", done_bytes_, total_bytes_);
  done_bytes_ +=
      share_of_bytes(extent_bytes_, round + 1, job_.rounds) - share_of_bytes(extent_bytes_, round, job_.rounds);
  begin(round + io::WindowPool::kAhead);
  const std::uint64_t ahead = std::min<std::uint64_t>(job_.rounds - round - 1, io::WindowPool::kAhead);
  engine_->wait_rounds(ahead);
  job_.buffers.barrier();
  engine_->finish_rounds(ahead);
  return job_.buffers.of(job_.windows, round);
}

void FileReader::close() {
  engine_->close();
  report_progress("reading", total_bytes_, total_bytes_);
}

/// Collective.
void FileReader::begin(std::uint64_t round) {
  if (round >= job_.rounds) return;
  job_.buffers.make_window(communicator_, round);
  put_read_ops(job_.buffers.of(job_.windows, round), ops_);
  engine_->begin_read(ops_);
}

}  // namespace cairn::checkpoint
