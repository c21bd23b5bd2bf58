#include "io/staged_reads.hpp"

#include <cstring>

namespace cairn::io {
namespace {

/// Buffers that reads begin with; each read that has ended brings one more.
constexpr std::uint64_t kFirstBuffers = 4;

}  // namespace

StagedReads::StagedReads(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes) : queue_(queue) {
  for (std::uint64_t buffer = memory.size() / buffer_bytes; buffer-- > 0;) {
    free_.push_back(memory.data() + buffer * buffer_bytes);
  }
}

void StagedReads::read(const os::IoQueue::Target& target, std::span<std::byte> data, std::uint64_t offset,
                       std::uint64_t round) {
  reads_.push_back({target, data, offset, round, nullptr});
  start();
}

void StagedReads::read_plainly(os::File& file, std::span<std::byte> data, std::uint64_t offset, std::uint64_t round) {
  read({nullptr, &file, 1}, data, offset, round);
}

void StagedReads::start() {
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

void StagedReads::complete_oldest() {
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

void StagedReads::finish(std::uint64_t round) {
  while (!reads_.empty() && reads_.front().round <= round) complete_oldest();
  const auto failure = failures_.find(round);
  if (failure == failures_.end()) return;
  const std::exception_ptr thrown = failure->second;
  failures_.erase(failure);
  std::rethrow_exception(thrown);
}

}  // namespace cairn::io
