// Memory of a device, streams, and what is put on a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gpu/runtime.hpp"

namespace cairn::gpu {

// Memory of a device and pinned memory of the host: owners and views.
//
// A view of device memory is a type of its own, so that nobody reads it on the host by mistake.

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

// Streams, events, and what is put on a stream: copies and fills. A device's work is asynchronous: a stream does what
// is put on it one after the other, streams go side by side, and synchronise() waits.
//
// Streams do not wait for the default stream: whoever filled device memory on another stream has it finished before, or
// gives an event to wait for.

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

/// On the device that is current when it is made. Destruction waits for nothing: synchronise() before buffers go.
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

  /// Asynchronous. The host memory should be pinned (else the call may wait), and must live until synchronise().
  /// Requires equal sizes.
  void copy(std::span<std::byte> to, ConstDeviceSpan from) const;
  void copy(DeviceSpan to, std::span<const std::byte> from) const;
  void copy(DeviceSpan to, ConstDeviceSpan from) const;
  /// Rows, likewise; between host and device or within either. Requires strides of at least a row where there are
  /// several.
  void copy_rows(const RowCopy& rows) const;
  /// Every byte becomes `value`.
  void fill(DeviceSpan to, unsigned char value) const;

  [[nodiscard]] StreamHandle* handle() const { return handle_; }

 private:
  StreamHandle* handle_;
};

/// Makes a device the calling thread's current one, and the one before again.
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
