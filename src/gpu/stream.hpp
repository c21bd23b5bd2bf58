// Streams, events, and what is put on a stream: copies and fills. A device's work is asynchronous: a stream does what is put
// on it one after the other, streams go side by side, and synchronise() waits.
//
// Streams do not wait for the default stream: whoever filled device memory on another stream has it finished before, or gives
// an event to wait for.
#pragma once

#include <span>
#include <utility>

#include "gpu/memory.hpp"
#include "gpu/runtime.hpp"

namespace cairn::gpu {

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
