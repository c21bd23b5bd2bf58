// Memory of a device, streams, and work on streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gpu/runtime.hpp"

namespace cairn::gpu {

// Owners and views of device memory and pinned host memory. Views of device memory have separate types, so that the
// host does not read this memory by mistake.

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

/// Memory from `kAllocate`, freed by `kFree`; aligned to 256 bytes.
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

/// Uninitialised host memory that devices access directly, at full speed and concurrently with other work.
class PinnedBuffer : public Owned<runtime::allocate_pinned, runtime::free_pinned> {
 public:
  using Owned::Owned;
  [[nodiscard]] std::span<std::byte> span() const { return {data_, size_}; }
};

// Streams, events, and work on streams: copies and fills. Work is asynchronous: a stream runs its work in order,
// streams run concurrently, and synchronise() waits.
//
// Streams do not wait for the default stream: a caller that fills device memory on another stream must first finish
// that work, or pass an event to wait for.

class Stream;

class Event {
 public:
  Event() : handle_(runtime::create_event()) {}
  ~Event() { runtime::destroy_event(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] EventHandle* handle() const { return handle_; }

 private:
  EventHandle* handle_;
};

/// Belongs to the device that is current at construction. The destructor does not wait: call synchronise() first.
class Stream {
 public:
  Stream() : handle_(runtime::create_stream()) {}
  ~Stream() {
    if (handle_ != nullptr) runtime::destroy_stream(handle_);
  }
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void synchronise() const { runtime::synchronise(handle_); }
  void record(const Event& event) const { runtime::record(event.handle(), handle_); }
  void wait(const Event& event) const { runtime::wait(handle_, event.handle()); }

  /// Asynchronous. The host memory should be pinned (otherwise the call may wait), and must stay valid until
  /// synchronise(). Sizes must be equal.
  void copy(std::span<std::byte> to, ConstDeviceSpan from) const;
  void copy(DeviceSpan to, std::span<const std::byte> from) const;
  void copy(DeviceSpan to, ConstDeviceSpan from) const;
  /// Asynchronous copy of rows, between host and device or within either. With several rows, strides must be at least
  /// the size of a row.
  void copy_rows(const RowCopy& rows) const;
  /// Sets every byte to `value`.
  void fill(DeviceSpan to, unsigned char value) const;

  [[nodiscard]] StreamHandle* handle() const { return handle_; }

 private:
  StreamHandle* handle_;
};

/// Makes a device the calling thread's current one; the destructor restores the previous one.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device(device); }
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

}  // namespace cairn::gpu
