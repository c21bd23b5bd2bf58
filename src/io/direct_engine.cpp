#include "io/direct_engine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/rounds.hpp"
#include "os/limits.hpp"

namespace cairn::io {
namespace {

/// Bounce buffers in use at the beginning; each completed read allows one more.
constexpr std::uint64_t kFirstBuffers = 4;
/// Files that a rank opens at a time even if its process may open fewer; the system then reports an error.
constexpr std::uint64_t kFewestOpen = 2;

/// Limit on the requests in the kernel, per rank: more than six windows of 16 MiB need at 1 MiB per request.
constexpr unsigned kQueueDepth = 128;
constexpr std::uint64_t kSmallestRequestBytes = 64ULL << 10;
/// More rounds than any caller has in flight.
constexpr std::size_t kRoundsAhead = 32;

bool is_aligned(const std::byte* address, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

}  // namespace

BounceReads::BounceReads(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes) : queue_(queue) {
  for (std::uint64_t buffer = memory.size() / buffer_bytes; buffer-- > 0;) {
    free_.push_back(memory.data() + buffer * buffer_bytes);
  }
}

void BounceReads::read(const os::IoQueue::Target& target, std::span<std::byte> data, std::uint64_t offset,
                       std::uint64_t round) {
  reads_.push_back({target, data, offset, round, nullptr});
  start();
}

void BounceReads::read_plainly(os::File& file, std::span<std::byte> data, std::uint64_t offset, std::uint64_t round) {
  read({nullptr, &file, 1}, data, offset, round);
}

void BounceReads::start() {
  for (; started_ < first_ + reads_.size(); ++started_) {
    Read& read = reads_[started_ - first_];
    if (read.target.direct == nullptr) continue;
    if (free_.empty() || in_use_ >= kFirstBuffers + first_) return;
    read.buffer = free_.back();
    free_.pop_back();
    ++in_use_;
    queue_->read(read.target, {read.buffer, read.data.size()}, read.offset, started_);
  }
}

void BounceReads::complete_oldest() {
  const Read& read = reads_.front();
  try {
    if (read.target.direct == nullptr) {
      read.target.plain->read_at(read.data, read.offset);
    } else {
      queue_->finish(first_);
      std::memcpy(read.data.data(), read.buffer, read.data.size());
    }
  } catch (...) {
    failures_.try_emplace(read.round, std::current_exception());
  }
  if (read.buffer != nullptr) {
    free_.push_back(read.buffer);
    --in_use_;
  }
  reads_.pop_front();
  ++first_;
  start();
}

void BounceReads::finish(std::uint64_t round) {
  while (!reads_.empty() && reads_.front().round <= round) complete_oldest();
  const auto failure = failures_.find(round);
  if (failure == failures_.end()) return;
  const std::exception_ptr thrown = failure->second;
  failures_.erase(failure);
  std::rethrow_exception(thrown);
}

DirectEngine::DirectEngine(comm::Communicator& communicator, const EngineOptions& options, EngineTraits traits)
    : communicator_(communicator),
      traits_(traits),
      reserve_space_(options.reserve_space),
      striping_(os::striping_of_hints(options.hints)),
      request_bytes_(base::round_up(std::max(options.request_bytes, kSmallestRequestBytes), kSmallestRequestBytes)),
      bounce_buffer_(traits_.is_direct ? options.bounce_buffer : std::span<std::byte>()),
      more_files_(options.more_files) {
  if (!bounce_buffer_.empty() && bounce_buffer_.size() < kRequestBytes) {
    throw base::internal_error("engine 'direct': a bounce buffer of less than a request");
  }
  rounds_.reserve(kRoundsAhead);
}

void DirectEngine::begin(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  if (!files_.empty()) throw base::internal_error("engine '" + std::string(traits_.name) + "' was opened twice");
  files_ = std::move(files);
  const auto count = base::narrow<std::uint32_t>(files_.size(), "number of files");
  const auto aggregators = extents.aggregators_of_files(count);
  for (std::uint32_t file = 0; file < count; ++file) {
    if (creator_of_file(aggregators, file, communicator_.size()) == communicator_.rank()) kept_.push_back(file);
  }
  const std::vector<std::uint32_t> in_extents = extents.files_of(communicator_.rank());
  std::set_union(in_extents.begin(), in_extents.end(), more_files_.begin(), more_files_.end(),
                 std::back_inserter(mine_));
  for (std::vector<std::uint32_t>* const list : {&kept_, &mine_})
    std::erase_if(*list, [&](std::uint32_t file) { return files_[file].path.empty(); });
  descriptors_.resize(mine_.size());
  last_use_.resize(mine_.size());
  const std::uint64_t of_a_place = traits_.is_direct ? 2 : 1;
  const std::uint64_t most = os::descriptors_to_use(kFewestOpen * of_a_place) / of_a_place;
  most_open_ = static_cast<std::size_t>(std::min<std::uint64_t>(most, mine_.size()));
}

std::size_t DirectEngine::place_of(std::uint32_t file) const {
  const auto at = std::lower_bound(mine_.begin(), mine_.end(), file);
  if (at == mine_.end() || *at != file) {
    throw base::internal_error("I/O round: file " + std::to_string(file) + " is not this rank's");
  }
  return static_cast<std::size_t>(at - mine_.begin());
}

/// All files lie in one directory. For files in memory, reserving would be half of the work of writing, done by one
/// rank while the others wait, so only the free space is checked.
void DirectEngine::look_at_storage() {
  const auto first = std::ranges::find_if(files_, [](const EngineFile& file) { return !file.path.empty(); });
  if (first == files_.end()) return;
  const auto folder = first->path.parent_path();
  const os::FileSystemInfo storage = os::file_system_of(folder.empty() ? "." : folder);
  writes_to_memory_ = storage.lives_in_memory();
  is_local_ = storage.is_local();
  if (!writes_to_memory_ || !reserve_space_) return;
  std::uint64_t needed = 0;
  for (const EngineFile& file : files_) {
    if (!file.path.empty()) needed = base::add(needed, file.size_bytes, "bytes of all files");
  }
  if (needed <= storage.free_bytes) return;
  throw Error(ErrorKind::kIo,
              "cannot write '" + base::printable(first->path.string()) +
                  "': No space left on device: " + base::format_size(needed) + " are to be written, and " +
                  base::format_size(storage.free_bytes) + " are free",
              {ENOSPC, first->path.native()});
}

void DirectEngine::open_for_write(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  comm::agree(communicator_, "create data files", [&] {
    begin(std::move(files), extents);
    look_at_storage();
    for (const std::uint32_t number : kept_) {
      const EngineFile& file = files_[number];
      os::File created = os::create_striped(file.path, striping_);
      created.set_size(file.size_bytes);
      // If reserving is not supported, the writes report a lack of space.
      if (reserve_space_ && !writes_to_memory_) created.reserve(file.size_bytes);
      const bool is_mine = std::binary_search(mine_.begin(), mine_.end(), number);
      if (!is_mine) created.sync();  // a file without extents: perhaps no rank syncs it later
      created.close();
    }
  });
  comm::agree(communicator_, "open data files", [&] {
    mode_ = os::OpenMode::kWrite;
    open_first();
    open_in_memory();
  });
  if (traits_.is_direct) open_direct();
}

void DirectEngine::open_for_read(std::vector<EngineFile> files, plan::ExtentMaps extents) {
  comm::agree(communicator_, "open data files", [&] {
    begin(std::move(files), extents);
    for (const std::uint32_t number : mine_) check_size(files_[number], "cannot read:", ErrorKind::kIntegrity);
    open_first();
    for (const std::uint32_t number : kept_) check_size(files_[number], "cannot read:", ErrorKind::kIntegrity);
  });
  if (traits_.is_direct) open_direct();
  if (bounce_buffer_.empty()) return;
  request_bytes_ = std::min(request_bytes_, kRequestBytes);
  comm::agree(communicator_, "open data files",
              [&] { bounced_ = std::make_unique<BounceReads>(queue_.get(), bounce_buffer_, request_bytes_); });
}

/// Writing to a file in memory is copying. Kernel threads can copy while this thread fills the next window; without
/// io_uring this thread copies at once.
void DirectEngine::open_in_memory() {
  try {
    if (writes_to_memory_ && !mine_.empty()) queue_ = std::make_unique<os::IoQueue>(kQueueDepth);
  } catch (const Error&) {
  }
}

/// Opens as many files as the limit allows; use() opens the others.
void DirectEngine::open_first() {
  for (std::size_t place = 0; place < most_open_; ++place) {
    open_place(place);
    if (most_open_ < mine_.size()) open_.push_back(place);
  }
}

void DirectEngine::open_place(std::size_t place) {
  const std::filesystem::path& path = files_[mine_[place]].path;
  descriptors_[place] = os::File(path, mode_);
  if (queue_ && !direct_.empty()) direct_[place] = os::open_direct(path, mode_);
}

void DirectEngine::close_place(std::size_t place, std::uint64_t round) {
  for (Round& earlier : rounds_) {
    if (earlier.number < round && earlier.number <= last_use_[place]) wait(earlier);
  }
  if (last_use_[place] == round) finish_requests(round);
  if (mode_ == os::OpenMode::kWrite) descriptors_[place].sync();
  if (!direct_.empty()) direct_[place].file.close();
  descriptors_[place].close();
}

void DirectEngine::use(std::size_t place, std::uint64_t round) {
  if (most_open_ < mine_.size()) {
    if (descriptors_[place].is_open()) {
      open_.remove(place);
    } else {
      if (open_.size() >= most_open_) {
        close_place(open_.front(), round);
        open_.pop_front();
      }
      open_place(place);
    }
    open_.push_back(place);
  }
  last_use_[place] = round;
}

void DirectEngine::open_direct() {
  std::string refusal;
  comm::agree(communicator_, "open data files", [&] {
    direct_.resize(mine_.size());
    for (std::size_t place = 0; place < most_open_; ++place) {
      direct_[place] = os::open_direct(files_[mine_[place]].path, mode_);
      if (refusal.empty()) refusal = direct_[place].refusal;
      if (!direct_[place].refusal.empty()) continue;
      if (queue_) continue;
      try {
        queue_ = std::make_unique<os::IoQueue>(kQueueDepth);
      } catch (const Error& error) {
        refusal = error.what();
        break;
      }
    }
  });
  const std::optional<int> first = communicator_.lowest_rank_where(!refusal.empty());
  if (!first) return;
  communicator_.share(refusal, *first);
  comm::agree(communicator_, "open data files",
              [&] { base::warn_once("engine direct goes through the page cache instead: " + refusal); });
}

/// Performs one operation: queues a write to a file in memory, or the part for O_DIRECT; the rest uses the page cache.
template <class Op>
void DirectEngine::move(const Op& op, std::uint64_t round) {
  const std::size_t place = place_of(op.file);
  use(place, round);
  os::File& plain = descriptors_[place];
  const auto through_page_cache = [&](auto data, std::uint64_t offset) {
    if (data.empty()) return;
    if constexpr (std::is_same_v<Op, WriteOp>) {
      plain.write_at(data, offset);
      plain.start_writeback(offset, data.size());
    } else if (bounced_) {
      bounced_->read_plainly(plain, data, offset, round);
    } else {
      plain.read_at(data, offset);
    }
  };
  if constexpr (std::is_same_v<Op, WriteOp>) {
    if (queue_ && writes_to_memory_) return queue_->write({&plain, &plain, 1}, op.data, op.offset, round);
  }
  os::DirectFile* direct = queue_ && !direct_.empty() && direct_[place].file.is_open() ? &direct_[place] : nullptr;
  const std::uint64_t alignment = direct != nullptr ? direct->alignment : 1;
  const std::uint64_t begin = base::round_up(op.offset, alignment) - op.offset;  // the aligned middle of the data
  const std::uint64_t end =
      op.data.size() - std::min<std::uint64_t>(op.data.size(), (op.offset + op.data.size()) % alignment);
  if (direct == nullptr || begin >= end || (!bounced_ && !is_aligned(op.data.data() + begin, alignment))) {
    return through_page_cache(op.data, op.offset);
  }
  const os::IoQueue::Target target{&direct->file, &plain, alignment};
  for (std::uint64_t at = begin; at < end;) {
    // Cuts where the file offset is a multiple of the request size, so that requests match the storage's stripes. A
    // local disk accepts a limited number of memory segments per request, one for each huge page, so writes to it are
    // cut where the memory address is a multiple.
    const auto place_of_cut = is_local_ ? reinterpret_cast<std::uintptr_t>(op.data.data() + at) : op.offset + at;
    const std::uint64_t to_cut = request_bytes_ - place_of_cut % request_bytes_;
    const std::uint64_t bytes = std::min(to_cut, end - at);
    if constexpr (std::is_same_v<Op, WriteOp>) {
      queue_->write(target, op.data.subspan(at, bytes), op.offset + at, round);
    } else if (bounced_) {
      bounced_->read(target, op.data.subspan(at, bytes), op.offset + at, round);
    } else {
      queue_->read(target, op.data.subspan(at, bytes), op.offset + at, round);
    }
    at += bytes;
  }
  through_page_cache(op.data.first(begin), op.offset);
  through_page_cache(op.data.subspan(end), op.offset + end);
}

/// Rank-local: failures are kept for finish_rounds.
template <class Op>
void DirectEngine::begin_round(std::span<const Op> ops) {
  rounds_.push_back({rounds_begun_++, std::is_same_v<Op, WriteOp>, false, nullptr});
  Round& round = rounds_.back();
  try {
    check_round(ops, std::span<const EngineFile>(files_));
    for (const Op& op : ops) move(op, round.number);
  } catch (...) {
    round.failure = std::current_exception();
  }
}

void DirectEngine::begin_write(std::span<const WriteOp> ops) { begin_round(ops); }
void DirectEngine::begin_read(std::span<const ReadOp> ops) { begin_round(ops); }

void DirectEngine::finish_requests(std::uint64_t round) {
  if (bounced_) {
    bounced_->finish(round);
  } else if (queue_) {
    queue_->finish(round);
  }
}

void DirectEngine::wait(Round& round) {
  if (round.is_done) return;
  round.is_done = true;
  try {
    finish_requests(round.number);
  } catch (...) {
    if (!round.failure) round.failure = std::current_exception();
  }
}

void DirectEngine::wait_rounds(std::size_t unfinished) {
  for (std::size_t r = 0; r + unfinished < rounds_.size(); ++r) wait(rounds_[r]);
}

void DirectEngine::finish_rounds(std::size_t unfinished) {
  while (rounds_.size() > unfinished) {
    Round round = rounds_.front();
    rounds_.erase(rounds_.begin());
    wait(round);
    comm::agree(communicator_, round.is_write ? "write data files" : "read data files", [&] {
      if (round.failure) std::rethrow_exception(round.failure);
    });
  }
}

void DirectEngine::write_round(std::span<const WriteOp> ops) {
  begin_write(ops);
  finish_rounds(0);
}

void DirectEngine::read_round(std::span<const ReadOp> ops) {
  begin_read(ops);
  finish_rounds(0);
}

void DirectEngine::sync() {
  finish_rounds(0);
  comm::agree(communicator_, "sync data files", [&] {
    for (os::File& file : descriptors_) {
      if (file.is_open()) file.sync();  // a closed file was synced before it was closed
    }
    for (const std::uint32_t number : kept_) check_size(files_[number], "after writing,", ErrorKind::kIo);
  });
}

void DirectEngine::close() {
  queue_.reset();
  comm::agree(communicator_, "close data files", [&] {
    for (os::DirectFile& direct : direct_) direct.file.close();
    for (os::File& file : descriptors_) file.close();
  });
}

}  // namespace cairn::io
