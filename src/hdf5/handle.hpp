// HDF5's identifiers as objects, the lock for calls of HDF5, and HDF5's error stack as one line. Includes hdf5.h: for
// this folder only.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "cairn/error.hpp"

namespace cairn::hdf5 {

/// Must be held around every call of HDF5, and around everything that makes, closes or destroys a Handle.
/// Recursive. The first lock switches off HDF5's own error output.
class LibraryLock {
 public:
  LibraryLock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// The most specific entry of HDF5's error stack ("HDF5: unable to open file: name = ..."), on one line.
std::string error_text();

/// Throws an Error of `kind`: "<action> '<path>' failed: HDF5: ...".
[[noreturn]] void fail(ErrorKind kind, std::string_view action, const std::filesystem::path& path);

/// An identifier and the function that closes it.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  [[nodiscard]] bool is_valid() const { return id_ >= 0; }
  [[nodiscard]] hid_t get() const { return id_; }
  /// Closes the identifier now. False if HDF5 reports an error.
  bool reset() {
    if (id_ < 0) return true;
    return close_(std::exchange(id_, H5I_INVALID_HID)) >= 0;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// Checks the calls on one file: an invalid handle or a failing return code becomes an Error of the checker's kind.
class Checker {
 public:
  Checker(ErrorKind kind, std::filesystem::path path) : kind_(kind), path_(std::move(path)) {}

  Handle handle(hid_t id, Handle::Close close, std::string_view action) const {
    if (id < 0) fail(kind_, action, path_);
    return {id, close};
  }
  void done(herr_t status, std::string_view action) const {
    if (status < 0) fail(kind_, action, path_);
  }
  [[nodiscard]] ErrorKind kind() const { return kind_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  ErrorKind kind_;
  std::filesystem::path path_;
};

}  // namespace cairn::hdf5
