#include "io/disk_reader.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "os/file.hpp"
#include "os/page_cache.hpp"

namespace cairn::io {
namespace {

/// A multiple of every alignment that os::open_direct can return.
constexpr std::uint64_t kUnitBytes = 64ULL << 10;

/// Whether the file system accepts O_DIRECT but may still use the page cache: for compressed files, or if it is old.
bool may_ignore_direct(const std::string& type) { return type == "btrfs" || type == "zfs" || type == "bcachefs"; }

}  // namespace

DiskReader::DiskReader(std::span<std::byte> memory)
    : memory_(memory.first(std::min(memory.size(), kMostBytes))),
      request_bytes_(std::min(kRequestBytes, memory_.size() / 2 / kUnitBytes * kUnitBytes)),
      buffers_(request_bytes_ == 0 ? 0 : memory_.size() / request_bytes_) {
  if (memory.size() < kLeastBytes) {
    throw base::internal_error(fmt::format("{} bytes are not enough to read through", memory.size()));
  }
  try {
    queue_ = std::make_unique<os::IoQueue>(base::narrow<unsigned>(buffers_, "buffers"));
  } catch (const Error&) {  // containers without io_uring
    worker_ = std::make_unique<RoundWorker>();
  }
}

std::shared_ptr<DiskReader::OpenFile> DiskReader::open(std::uint32_t number, const EngineFile& file) {
  auto opened = std::make_shared<OpenFile>();
  opened->number = number;
  opened->plain = os::File(file.path, os::OpenMode::kRead);
  if (refusal_.empty()) {
    opened->direct = os::open_direct(file.path, os::OpenMode::kRead);
  } else {
    opened->direct.refusal = refusal_;
  }
  return opened;
}

/// Called once for each range, before it is read.
void DiskReader::look_at_cache(const OpenFile& file, const plan::Extent& range) {
  const std::string& refusal = file.direct.refusal;
  const os::FileSystemInfo storage = os::file_system_of(file.plain.path());
  if (refusal.empty() && !may_ignore_direct(storage.type)) return;
  std::uint64_t cached = range.end - range.begin;
  // zfs has its own cache, which cannot be queried.
  if (!storage.lives_in_memory() && storage.type != "zfs") {
    // Read-ahead would cache pages in the ranges of other ranks, which would then count them as cached.
    ::posix_fadvise(file.plain.descriptor(), 0, 0, POSIX_FADV_RANDOM);
    cached = os::drop_cached(file.plain, range.begin, cached);
  }
  cached_bytes_ += cached;
  if (cached == 0 || !why_cached_.empty()) return;
  why_cached_ = refusal.empty() ? fmt::format("{} may answer from a cache", storage.type) : refusal;
}

void DiskReader::start(Request request) {
  const OpenFile& file = *request.file;
  const std::uint64_t number = first_ + requests_.size();
  const std::uint64_t needed = request.skip_bytes + request.bytes;
  if (worker_) request.refusal = std::make_shared<std::string>();
  requests_.push_back(request);
  OpenFile& opened = *requests_.back().file;
  const bool is_direct = file.direct.file.is_open();
  if (queue_) {
    const os::IoQueue::Target target{is_direct ? &opened.direct.file : &opened.plain, &opened.plain,
                                     is_direct ? file.direct.alignment : 1};
    queue_->read_to_end(target, request.buffer, request.offset, number, needed);
    return;
  }
  worker_->begin([request = std::move(request), is_direct, needed] {
    if (is_direct) {
      *request.refusal =
          os::read_direct(request.file->direct, request.file->plain, request.buffer, request.offset, needed);
    } else {
      request.file->plain.read_at(request.buffer.first(needed), request.offset);
    }
  });
}

void DiskReader::finish_oldest(const PieceSeen& seen) {
  if (queue_) {
    queue_->finish(first_);
  } else {
    worker_->wait(requests_.size() - 1);
    worker_->rethrow();
  }
  const Request request = std::move(requests_.front());
  requests_.pop_front();
  ++first_;
  note_refusal(request);
  seen(request.file->number, request.offset + request.skip_bytes,
       request.buffer.subspan(request.skip_bytes, request.bytes));
}

/// If O_DIRECT was refused for a transfer, counts the request's bytes, since they may come from this machine's cache.
void DiskReader::note_refusal(const Request& request) {
  if (!request.file->direct.file.is_open()) return;
  if (refusal_.empty()) refusal_ = queue_ ? queue_->refusal() : *request.refusal;
  if (refusal_.empty()) return;
  cached_bytes_ += request.bytes;
  if (why_cached_.empty()) why_cached_ = refusal_;
}

/// Waits for all requests in flight and ignores their errors.
void DiskReader::give_up() {
  for (; queue_ && !requests_.empty(); requests_.pop_front()) {
    try {
      queue_->finish(first_++);
    } catch (const Error&) {  // the first error was reported
    }
  }
  if (!worker_) return;
  worker_->wait(0);
  worker_.reset();
  first_ += requests_.size();
  requests_.clear();
  worker_ = std::make_unique<RoundWorker>();  // a failed worker cannot take more rounds
}

void DiskReader::read(std::span<const EngineFile> files, std::span<const plan::Extent> ranges, const PieceSeen& seen) {
  try {
    read_ranges(files, ranges, seen);
  } catch (...) {
    give_up();
    throw;
  }
}

void DiskReader::read_ranges(std::span<const EngineFile> files, std::span<const plan::Extent> ranges,
                             const PieceSeen& seen) {
  std::shared_ptr<OpenFile> file;
  for (const plan::Extent& range : ranges) {
    if (!file || file->number != range.file) file = open(range.file, files[range.file]);
    look_at_cache(*file, range);
    const std::uint64_t alignment = file->direct.file.is_open() ? file->direct.alignment : 1;
    for (std::uint64_t at = range.begin; at < range.end;) {
      // Cuts where the file offset is a multiple of the request size, so that an aligned request fits into a buffer.
      const std::uint64_t end = std::min(range.end, (at / request_bytes_ + 1) * request_bytes_);
      while (requests_.size() >= buffers_) finish_oldest(seen);
      Request request;
      request.file = file;
      request.offset = at - at % alignment;
      request.skip_bytes = at - request.offset;
      request.bytes = end - at;
      const std::uint64_t size = base::round_up(end, alignment) - request.offset;
      request.buffer = memory_.subspan((first_ + requests_.size()) % buffers_ * request_bytes_, size);
      start(std::move(request));
      at = end;
    }
  }
  while (!requests_.empty()) finish_oldest(seen);
}

}  // namespace cairn::io
