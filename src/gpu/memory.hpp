// Memory of a device and pinned memory of the host: owners and views.
//
// A view of device memory is a type of its own, so that nobody reads it on the host by mistake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gpu/runtime.hpp"

namespace cairn::gpu {

struct ConstDeviceSpan {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;

  [[nodiscard]] ConstDeviceSpan subspan(std::uint64_t begin, std::uint64_t count) const {
    return {data + begin, count};
  }
};

struct DeviceSpan {
  std::byte* data = nullptr;
  std::uint64_t size = 0;

  [[nodiscard]] DeviceSpan subspan(std::uint64_t begin, std::uint64_t count) const { return {data + begin, count}; }
  // NOLINTNEXTLINE(google-explicit-constructor): as std::span<T> to std::span<const T>
  operator ConstDeviceSpan() const { return {data, size}; }
};

/// Memory that `Free` gives back; at a multiple of 256.
template <auto kAllocate, auto kFree>
class Owned {
 public:
  Owned() = default;
  explicit Owned(std::uint64_t bytes) : data_(bytes == 0 ? nullptr : kAllocate(bytes)), size_(bytes) {}
  ~Owned() {
    if (data_ != nullptr) kFree(data_);
  }
  Owned(Owned&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }

 protected:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Uninitialised memory of the current device. Freeing waits for the device.
class DeviceBuffer : public Owned<runtime::allocate_device, runtime::free_device> {
 public:
  using Owned::Owned;
  [[nodiscard]] DeviceSpan span() const { return {data_, size_}; }
};

/// Uninitialised host memory that devices copy from and to by themselves, at full speed and beside other work.
class PinnedBuffer : public Owned<runtime::allocate_pinned, runtime::free_pinned> {
 public:
  using Owned::Owned;
  [[nodiscard]] std::span<std::byte> span() const { return {data_, size_}; }
};

}  // namespace cairn::gpu
