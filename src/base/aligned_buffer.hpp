// Uninitialised memory on a 4 KiB boundary, for O_DIRECT and page-sized copies. Large buffers request huge pages, which
// cause fewer page faults at first use, and leave fewer pages for O_DIRECT to pin.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace cairn::base {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::uint64_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    const std::size_t room = (bytes + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, room)));
    if (!data_) throw std::bad_alloc();
    if (alignment == kHugePage) ::madvise(data_.get(), room, MADV_HUGEPAGE);  // advice: the kernel may refuse it
  }
  [[nodiscard]] std::span<std::byte> span() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> span() const { return {data_.get(), size_}; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t kHugePage = 2UL << 20;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::uint64_t size_ = 0;
};

}  // namespace cairn::base
