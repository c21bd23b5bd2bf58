#include "io/staged_requests.hpp"

#include <cstring>

namespace cairn::io {
namespace {

/// Buffers that reads begin with, and how many requests must have ended for one more.
constexpr std::uint64_t kFirstBuffers = 4;
constexpr std::uint64_t kRequestsPerBuffer = 4;

}  // namespace

StagedRequests::StagedRequests(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes)
    : queue_(queue) {
  for (std::uint64_t buffer = memory.size() / buffer_bytes; buffer-- > 0;) {
    free_.push_back(memory.data() + buffer * buffer_bytes);
  }
}

std::byte* StagedRequests::take_buffer() {
  std::byte* const buffer = free_.back();
  free_.pop_back();
  ++in_use_;
  return buffer;
}

void StagedRequests::write(const os::IoQueue::Target& target, std::span<const std::byte> data, std::uint64_t offset,
                           std::uint64_t round) {
  if (free_.empty()) complete_oldest();
  const std::uint64_t number = first_ + requests_.size();
  std::byte* const buffer = take_buffer();
  std::memcpy(buffer, data.data(), data.size());
  requests_.push_back({target, {}, offset, round, buffer});
  started_ = number + 1;
  queue_->write(target, {buffer, data.size()}, offset, number);
}

void StagedRequests::read(const os::IoQueue::Target& target, std::span<std::byte> data, std::uint64_t offset,
                          std::uint64_t round) {
  requests_.push_back({target, data, offset, round, nullptr});
  start_reads();
}

void StagedRequests::read_plainly(os::File& file, std::span<std::byte> data, std::uint64_t offset,
                                  std::uint64_t round) {
  read({nullptr, &file, 1}, data, offset, round);
}

void StagedRequests::start_reads() {
  for (; started_ < first_ + requests_.size(); ++started_) {
    Request& request = requests_[started_ - first_];
    if (request.target.direct == nullptr) continue;
    if (free_.empty() || in_use_ >= kFirstBuffers + first_ / kRequestsPerBuffer) return;
    request.buffer = take_buffer();
    queue_->read(request.target, {request.buffer, request.data.size()}, request.offset, started_);
  }
}

void StagedRequests::complete_oldest() {
  const Request& request = requests_.front();
  try {
    if (request.target.direct == nullptr) {
      request.target.plain->read_at(request.data, request.offset);
    } else {
      queue_->finish(first_);
      if (!request.data.empty()) std::memcpy(request.data.data(), request.buffer, request.data.size());
    }
  } catch (...) {
    failures_.try_emplace(request.round, std::current_exception());
  }
  if (request.buffer != nullptr) {
    free_.push_back(request.buffer);
    --in_use_;
  }
  requests_.pop_front();
  ++first_;
  start_reads();
}

void StagedRequests::finish(std::uint64_t round) {
  while (!requests_.empty() && requests_.front().round <= round) complete_oldest();
  const auto failure = failures_.find(round);
  if (failure == failures_.end()) return;
  const std::exception_ptr thrown = failure->second;
  failures_.erase(failure);
  std::rethrow_exception(thrown);
}

}  // namespace cairn::io
