#include "checkpoint/file_writer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"

namespace cairn::checkpoint {
namespace {

std::uint64_t bytes_of(std::span<const io::WriteOp> ops) {
  std::uint64_t bytes = 0;
  for (const io::WriteOp& op : ops) bytes += op.data.size();
  return bytes;
}

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

/// Replaces `ops` with the writes of a window, without headers.
void put_write_ops(const plan::FileLayout& layout, const io::WindowBuffer& window, std::vector<io::WriteOp>& ops) {
  ops.clear();
  if (window.window == nullptr) return;
  for (std::size_t p = 0; p < window.window->parts.size(); ++p) {
    const plan::Extent& part = window.window->parts[p];
    const std::uint64_t begin = std::max<std::uint64_t>(part.begin, layout.files[part.file].header.size());
    if (begin >= part.end) continue;
    const std::uint64_t at = window.window->offsets[p] + begin - part.begin;
    ops.push_back({part.file, begin, window.buffer.subspan(at, part.end - begin)});
  }
}

constexpr std::size_t kCountedBytes = 256ULL << 10;

/// Largest size of a direct write, so that writing begins early and rounds have similar sizes.
constexpr std::uint64_t kLargestDirectOp = 64ULL << 20;
/// Number of rounds of direct writes, the same on every rank.
constexpr std::size_t kDirectRounds = 16;

/// All of `ops`, in `parts` lists with similar numbers of bytes.
std::vector<std::vector<io::WriteOp>> in_parts(std::span<const io::WriteOp> ops, std::size_t parts) {
  std::vector<std::vector<io::WriteOp>> all(parts);
  const std::uint64_t bytes = std::max<std::uint64_t>(bytes_of(ops), 1);
  std::uint64_t before = 0;
  for (const io::WriteOp& op : ops) {
    all[share_of_bytes(parts, before, bytes)].push_back(op);
    before += op.data.size();
  }
  return all;
}

}  // namespace

format::BlockTable FileWriter::write(const FillWindow& fill, Call& call) {
  try {
    find_what_is_there(fill, call);
    call.begin("open");
    open();
    write_past_windows(call);
    write_windows(fill, call);
    write_headers(call);
    call.begin("fsync");
    sync_and_close();
    return reduce_checksums(call);
  } catch (const comm::AgreedError&) {
    io::close_after_error(engine_.get());  // all ranks are here
    throw;
  }
}

void FileWriter::find_what_is_there(const FillWindow& fill, Call& call) {
  if (std::ranges::find(job_.may_be_there, true) == job_.may_be_there.end()) return;
  call.begin("digest");
  comm::agree(communicator_, "make room for checksums", [&] {
    checksums_.emplace(file_sizes(job_.layout.stored), job_.extents.block_bytes());
    ops_.reserve(most_parts(job_.windows));
    is_summed_ = job_.may_be_there;
    std::vector<io::WriteOp> headers = header_ops(job_.layout, job_.extents.of(communicator_.rank()));
    keep_ops(is_summed_, headers);
    for (const io::WriteOp& op : headers) add_checksum(op.file, op.offset, op.data);
  });
  const std::vector<bool> wanted = rounds_with(is_summed_);
  std::uint64_t bytes = 0;
  for (std::uint64_t round = 0; round < job_.rounds; ++round) {
    if (!wanted[round]) continue;
    if (job_.hooks != nullptr && round != 0) job_.hooks->before_round(round, bytes);
    const io::WindowBuffer window = job_.buffers.of(job_.windows, round);
    call.begin("exchange");
    bytes = fill(round, window);
    call.begin("digest");
    put_write_ops(job_.layout, window, ops_);
    note_arrival(round, bytes);
    keep_ops(is_summed_, ops_);
    for (const io::WriteOp& op : ops_) {
      add_checksum(op.file, op.offset, op.data);
      job_.digests->add(op.file, op.offset, op.data);
    }
    call.add_bytes(bytes_of(ops_));
  }
  comm::agree(communicator_, "digest the headers",
              [&] { job_.digests->add_header_blocks(job_.extents.of(communicator_.rank())); });
  job_.digests->combine(communicator_);
  is_written_ = job_.take();
  is_written_.flip();
}

std::vector<bool> FileWriter::rounds_with(const std::vector<bool>& is_wanted) const {
  constexpr std::uint64_t kBits = 64;
  std::vector<std::uint64_t> words;
  comm::agree(communicator_, "find the rounds", [&] {
    words.resize(base::ceil_div(job_.rounds, kBits));
    for (std::uint64_t round = 0; round < job_.windows.size(); ++round) {
      const auto& parts = job_.windows[round].parts;
      if (std::ranges::any_of(parts, [&](const plan::Extent& part) { return is_wanted[part.file]; }))
        words[round / kBits] |= std::uint64_t{1} << round % kBits;
    }
  });
  communicator_.all_reduce(words, comm::ReduceOp::kOr);
  std::vector<bool> rounds;
  comm::agree(communicator_, "find the rounds", [&] {
    for (std::uint64_t round = 0; round < job_.rounds; ++round)
      rounds.push_back((words[round / kBits] >> round % kBits & 1) != 0);
  });
  return rounds;
}

void FileWriter::keep_ops(const std::vector<bool>& is_wanted, std::vector<io::WriteOp>& ops) const {
  if (!is_wanted.empty()) std::erase_if(ops, [&](const io::WriteOp& op) { return !is_wanted[op.file]; });
}

/// Also allocates memory for all rounds of windows, because between rounds nothing may fail on one rank alone.
void FileWriter::open() {
  std::vector<io::EngineFile> files_of_engine;
  io::EngineOptions options;
  comm::agree(communicator_, "make room for checksums", [&] {
    os::fault_memory("memory.checksums");
    options.hints = job_.hints;
    for (const format::StoredFile& file : job_.layout.stored.files) total_bytes_ += file.size_bytes;
    ops_.reserve(most_parts(job_.windows));
    headers_ = header_ops(job_.layout, job_.extents.of(communicator_.rank()));
    keep_ops(is_written_, headers_);
    files_ = engine_files(job_.directory, job_.layout.stored);
    files_of_engine = files_;
    for (std::size_t file = 0; file < is_written_.size(); ++file) {
      if (!is_written_[file]) files_of_engine[file].path.clear();
    }
    if (job_.bypass_way == io::BypassWay::kDirect) options.more_files = job_.bypass->files();
    if (job_.has_checksums && !checksums_)
      checksums_.emplace(file_sizes(job_.layout.stored), job_.extents.block_bytes());
  });
  engine_ = io::make_engine_on_all(job_.engine, communicator_, std::move(options));
  engine_->open_for_write(std::move(files_of_engine), job_.extents);
}

void FileWriter::write_past_windows(Call& call) {
  const bool is_direct = job_.bypass_way == io::BypassWay::kDirect;
  if (is_direct) begin_direct(call);
  if (job_.hooks != nullptr) job_.hooks->before_round(0, 0);
  if (is_direct) {
    checksum_direct(call);
  } else if (job_.bypass_way) {
    write_bypass(call);
  }
}

void FileWriter::write_bypass(Call& call) {
  call.begin("checksum");  // the same phases in the same order on every rank
  call.begin("write");
  std::uint64_t done = 0;
  const std::uint64_t mine = job_.bypass->bytes();
  io::write_bypass(communicator_, files_, *job_.bypass, job_.bypass_memory,
                   [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
                     report_progress("writing", share_of_bytes(bypass_bytes(), done, mine), total_bytes_);
                     done += data.size();
                     call.add_bytes(data.size());
                     call.begin("checksum");
                     add_checksum(file, offset, data);
                     call.add_bytes(data.size());
                     call.begin("write");
                   });
}

/// Hands the runs to the engine in kDirectRounds rounds, each as soon as its bytes are in the snapshot.
void FileWriter::begin_direct(Call& call) {
  call.begin("write");
  comm::agree(communicator_, "write data files", [&] {
    direct_ = in_parts(job_.bypass->write_ops(job_.bypass_memory.boxes, kLargestDirectOp), kDirectRounds);
  });
  for (const std::vector<io::WriteOp>& ops : direct_) {
    for (const io::WriteOp& op : ops) job_.hooks->wait_for(op.data);
    engine_->begin_write(ops);
  }
}

/// Called when the snapshot is complete: computes checksums of the runs while storage writes them.
void FileWriter::checksum_direct(Call& call) {
  std::uint64_t done = 0;
  const std::uint64_t mine = job_.bypass->bytes();
  for (std::size_t round = 0; round < direct_.size(); ++round) {
    report_progress("writing", share_of_bytes(bypass_bytes(), done, mine), total_bytes_);
    const std::uint64_t bytes = bytes_of(direct_[round]);
    done += bytes;
    add_checksums(direct_[round], call);
    call.begin("write");
    engine_->wait_rounds(direct_.size() - 1 - round);  // so that the engine sends storage the next writes
    call.add_bytes(bytes);
  }
}

void FileWriter::write_windows(const FillWindow& fill, Call& call) {
  std::uint64_t bytes = 0;  ///< bytes of the previous round
  std::vector<bool> wanted;
  if (!is_written_.empty()) wanted = rounds_with(is_written_);
  for (std::uint64_t round = 0; round < job_.rounds; ++round) {
    call.begin("write");
    if (job_.hooks != nullptr && round != 0) job_.hooks->before_round(round, bytes);
    const std::uint64_t done = share_of_bytes(job_.extents.total_bytes(), round, job_.rounds);
    report_progress("writing", bypass_bytes() + done, total_bytes_);
    engine_->wait_rounds(io::WindowPool::kAhead);  // until the round that used this buffer last is done
    const io::WindowBuffer window = job_.buffers.of(job_.windows, round);
    call.begin("exchange");
    const bool is_empty = !wanted.empty() && !wanted[round];  // the round still begins and ends in the engine
    bytes = is_empty ? 0 : fill(round, window);
    engine_->finish_rounds(io::WindowPool::kAhead);  // a short wait after an exchange, when all ranks arrive together
    submit(round, is_empty ? io::WindowBuffer() : window, bytes, call);
  }
  if (job_.hooks != nullptr) job_.hooks->before_round(job_.rounds, bytes);
}

/// A wrong number of bytes is only noted here: the ranks agree on it once, in write_headers(), to save time.
void FileWriter::submit(std::uint64_t round, const io::WindowBuffer& window, std::uint64_t arrived_bytes, Call& call) {
  put_write_ops(job_.layout, window, ops_);
  note_arrival(round, arrived_bytes);
  keep_ops(is_written_, ops_);
  add_checksums(ops_, call);
  call.begin("write");
  engine_->begin_write(ops_);
  call.add_bytes(bytes_of(ops_));
}

/// Requires: `ops_` are all writes of the round.
void FileWriter::note_arrival(std::uint64_t round, std::uint64_t arrived_bytes) {
  const std::uint64_t expected_bytes = bytes_of(ops_);
  if (arrived_bytes != expected_bytes && !wrong_) wrong_ = WrongWindow{round, arrived_bytes, expected_bytes};
}

/// Throws Error(kInternal) if a window did not get the expected bytes.
void FileWriter::write_headers(Call& call) {
  add_checksums(headers_, call);
  call.begin("write");
  engine_->finish_rounds(0);
  comm::agree(communicator_, "exchange", [&] {
    if (!wrong_) return;
    throw base::internal_error(fmt::format("{} bytes arrived for window {} of {} data bytes", wrong_->arrived_bytes,
                                           wrong_->round, wrong_->expected_bytes));
  });
  engine_->write_round(headers_);
  report_progress("writing", total_bytes_, total_bytes_);
}

void FileWriter::sync_and_close() {
  report_progress("fsync", 0, total_bytes_);
  engine_->sync();
  engine_->close();
  report_progress("fsync", total_bytes_, total_bytes_);
}

format::BlockTable FileWriter::reduce_checksums(Call& call) {
  if (!checksums_) return {};
  call.begin("checksum");
  communicator_.all_reduce(checksums_->raw_words(), comm::ReduceOp::kXor);
  if (job_.digests != nullptr) {
    comm::agree(communicator_, "digest the headers",
                [&] { job_.digests->add_header_blocks(job_.extents.of(communicator_.rank())); });
    job_.digests->combine(communicator_);
  }
  format::BlockTable table;
  comm::agree(communicator_, "finish the checksums", [&] {
    std::vector<std::string> names;
    for (const auto& file : job_.layout.files) names.push_back(file.name);
    table = checksums_->finish(names);
  });
  return table;
}

void FileWriter::add_checksums(std::span<const io::WriteOp> ops, Call& call) {
  if (!checksums_) return;
  call.begin("checksum");
  for (const io::WriteOp& op : ops) {
    if (!is_summed_.empty() && is_summed_[op.file]) continue;
    add_checksum(op.file, op.offset, op.data);
    const bool is_data = op.offset >= job_.layout.files[op.file].header.size();
    if (is_data && job_.digests != nullptr && job_.digests->has(op.file))
      job_.digests->add(op.file, op.offset, op.data);
  }
  call.add_bytes(bytes_of(ops));
}

void FileWriter::add_checksum(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
  if (job_.counter == nullptr) return checksums_->add(file, offset, data);
  while (!data.empty()) {  // checksummed bytes are searched while they are in cache
    const auto piece = data.first(std::min(data.size(), kCountedBytes));
    checksums_->add(file, offset, piece);
    job_.counter->add(file, offset, piece);
    offset += piece.size();
    data = data.subspan(piece.size());
  }
}

}  // namespace cairn::checkpoint
