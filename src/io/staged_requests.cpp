#include "io/staged_requests.hpp"

#include <algorithm>
#include <cstring>

namespace cairn::io {

StagedRequests::StagedRequests(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes)
    : queue_(queue), memory_(memory), buffer_bytes_(buffer_bytes), buffers_(memory.size() / buffer_bytes) {}

std::span<std::byte> StagedRequests::buffer_of(std::uint64_t number, std::size_t bytes) const {
  return memory_.subspan(number % buffers_ * buffer_bytes_, bytes);
}

void StagedRequests::write(const os::IoQueue::Target& target, std::span<const std::byte> data, std::uint64_t offset,
                           std::uint64_t round) {
  if (requests_.size() == buffers_) complete_oldest();
  const std::uint64_t number = first_ + requests_.size();
  const auto buffer = buffer_of(number, data.size());
  std::memcpy(buffer.data(), data.data(), data.size());
  requests_.push_back({target, {}, offset, round});
  started_ = number + 1;
  queue_->write(target, buffer, offset, number);
}

void StagedRequests::read(const os::IoQueue::Target& target, std::span<std::byte> data, std::uint64_t offset,
                          std::uint64_t round) {
  requests_.push_back({target, data, offset, round});
  start_reads();
}

void StagedRequests::read_plainly(os::File& file, std::span<std::byte> data, std::uint64_t offset,
                                  std::uint64_t round) {
  read({nullptr, &file, 1}, data, offset, round);
}

void StagedRequests::start_reads() {
  for (; started_ < first_ + std::min<std::uint64_t>(requests_.size(), buffers_); ++started_) {
    const Request& request = requests_[started_ - first_];
    if (request.target.direct == nullptr) continue;
    queue_->read(request.target, buffer_of(started_, request.data.size()), request.offset, started_);
  }
}

void StagedRequests::complete_oldest() {
  const Request& request = requests_.front();
  try {
    if (request.target.direct == nullptr) {
      request.target.plain->read_at(request.data, request.offset);
    } else {
      queue_->finish(first_);
      if (!request.data.empty()) std::memcpy(request.data.data(), buffer_of(first_, request.data.size()).data(), request.data.size());
    }
  } catch (...) {
    failures_.try_emplace(request.round, std::current_exception());
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
