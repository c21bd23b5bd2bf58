#include "bench/rank_memory.hpp"

#include <algorithm>

namespace cairn::bench {
namespace {

base::AlignedBuffer used_buffer(std::uint64_t bytes) {
  base::AlignedBuffer buffer(bytes);
  // The first time takes the pages, the second one is the slow one that follows.
  for (const int value : {1, 2}) std::ranges::fill(buffer.span(), static_cast<std::byte>(value));
  return buffer;
}

}  // namespace

std::span<std::byte> RankMemory::take(std::uint64_t bytes) {
  if (bytes > area_.size()) {
    area_ = {};  // before the new one is made: both may not fit
    area_ = used_buffer(bytes);
  }
  return area_.span().first(bytes);
}

std::span<base::AlignedBuffer> RankMemory::buffers(std::size_t count, std::uint64_t bytes) {
  if (!buffers_.empty() && buffers_.front().size() != bytes) buffers_.clear();
  while (buffers_.size() < count) buffers_.push_back(used_buffer(bytes));
  return std::span(buffers_).first(count);
}

}  // namespace cairn::bench
