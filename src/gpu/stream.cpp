// Checks sizes before each copy by the runtime.
#include "gpu/stream.hpp"

#include <algorithm>
#include <string>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::gpu {
namespace {

void require_equal(std::uint64_t to, std::uint64_t from) {
  if (to == from) return;
  throw base::internal_error("a copy of " + std::to_string(from) + " bytes into " + std::to_string(to) + " bytes");
}

}  // namespace

void Stream::copy(std::span<std::byte> to, ConstDeviceSpan from) const {
  require_equal(to.size(), from.size);
  if (from.size != 0) runtime::copy(to.data(), from.data, from.size, handle_);
}

void Stream::copy(DeviceSpan to, std::span<const std::byte> from) const {
  require_equal(to.size, from.size());
  if (to.size != 0) runtime::copy(to.data, from.data(), to.size, handle_);
}

void Stream::copy(DeviceSpan to, ConstDeviceSpan from) const {
  require_equal(to.size, from.size);
  if (to.size != 0) runtime::copy(to.data, from.data, to.size, handle_);
}

void Stream::copy_rows(const RowCopy& rows) const {
  if (rows.row_bytes == 0 || rows.rows == 0) return;
  if (rows.rows > 1 && std::min(rows.to_stride, rows.from_stride) < rows.row_bytes) {
    throw base::internal_error("a copy of rows of " + std::to_string(rows.row_bytes) +
                               " bytes that overlap: " + std::to_string(std::min(rows.to_stride, rows.from_stride)) +
                               " bytes from each to the next");
  }
  runtime::copy_rows(rows, handle_);
}

void Stream::fill(DeviceSpan to, unsigned char value) const {
  if (to.size != 0) runtime::fill(to.data, value, to.size, handle_);
}

OnDevice::~OnDevice() {
  try {
    set_current_device(before_);
  } catch (const Error&) {  // if the previous device is lost, the next call reports it
  }
}

}  // namespace cairn::gpu
