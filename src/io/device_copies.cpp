#include "io/device_copies.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::io {
namespace {

/// Limits on a slot's landings. Many short runs share a slot, so the list of their landings must stay small.
constexpr std::uint64_t kMostLandings = 256;
constexpr std::uint64_t kBytesPerLanding = 64;

std::uint64_t slot_bytes_of(std::uint64_t bytes) {
  if (bytes >= DeviceCopies::kLeastBytes) return bytes / DeviceCopies::kLeastBytes * DeviceCopies::kSlotUnit;
  throw base::internal_error("copies between device and host: slots of " + std::to_string(bytes) +
                             " bytes together; it takes " + std::to_string(DeviceCopies::kLeastBytes));
}

}  // namespace

DeviceCopies::DeviceCopies(std::uint64_t bytes) : slot_bytes_(slot_bytes_of(bytes)) {}

DeviceCopies::~DeviceCopies() { settle(); }

void DeviceCopies::take_memory() {
  if (!slots_.empty()) return;
  gpu::PinnedBuffer pinned(slot_bytes_ * kSlots);
  std::vector<Slot> slots;
  slots.reserve(kSlots);
  for (std::size_t s = 0; s < kSlots; ++s) {
    slots.push_back({gpu::Stream(), pinned.span().subspan(s * slot_bytes_, slot_bytes_), 0, {}});
    slots.back().landings.reserve(std::min(slot_bytes_ / kBytesPerLanding, kMostLandings));
  }
  pinned_ = std::move(pinned);
  slots_ = std::move(slots);
}

void DeviceCopies::empty(Slot& slot) {
  const auto forget = [&] {
    slot.landings.clear();
    slot.used = 0;
  };
  try {
    slot.stream.synchronise();
  } catch (...) {
    forget();
    throw;
  }
  for (const Landing& landing : slot.landings) {
    copy_runs(landing.host, {landing.in_slot, landing.row_bytes}, landing.row_bytes, landing.rows);
  }
  forget();
}

DeviceCopies::Slot& DeviceCopies::next_empty() {
  at_ = (at_ + 1) % kSlots;
  empty(slots_[at_]);
  return slots_[at_];
}

DeviceCopies::Slot& DeviceCopies::with_room(std::uint64_t bytes) {
  Slot& slot = slots_[at_];
  const bool is_full = slot_bytes_ - slot.used < bytes || slot.landings.size() == slot.landings.capacity();
  return is_full ? next_empty() : slot;
}

/// Cuts rows into pieces that fit into a slot, and calls copy(slot, bytes in the slot, piece) for each piece.
template <class Copy>
void DeviceCopies::cut(std::uint64_t row_bytes, std::uint64_t rows, const Copy& copy) noexcept {
  if (error_ || row_bytes == 0) return;
  try {
    take_memory();
    for (Piece piece; piece.row < rows;) {
      const std::uint64_t rest = row_bytes - piece.inside;
      Slot& slot = with_room(std::min(rest, slot_bytes_));
      const std::uint64_t room = slot_bytes_ - slot.used;
      piece.row_bytes = std::min(rest, room);
      piece.rows = piece.row_bytes == row_bytes ? std::min(rows - piece.row, room / row_bytes) : 1;
      const std::uint64_t bytes = piece.row_bytes * piece.rows;
      const std::span<std::byte> place = slot.bytes.subspan(slot.used, bytes);
      slot.used += bytes;
      copy(slot, place, piece);
      piece.inside += piece.row_bytes;
      if (piece.inside == row_bytes) {
        piece.inside = 0;
        piece.row += piece.rows;
      }
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

void DeviceCopies::to_host(const Strided<std::byte*>& host, const Strided<const std::byte*>& device,
                           std::uint64_t row_bytes, std::uint64_t rows) noexcept {
  cut(row_bytes, rows, [&](Slot& slot, std::span<std::byte> place, const Piece& piece) {
    const std::byte* from = device.base + piece.row * device.stride + piece.inside;
    slot.stream.copy_rows({place.data(), piece.row_bytes, from, device.stride, piece.row_bytes, piece.rows});
    const Strided<std::byte*> to{host.base + piece.row * host.stride + piece.inside, host.stride};
    slot.landings.push_back({to, place.data(), piece.row_bytes, piece.rows});
  });
}

void DeviceCopies::to_device(const Strided<std::byte*>& device, const Strided<const std::byte*>& host,
                             std::uint64_t row_bytes, std::uint64_t rows) noexcept {
  cut(row_bytes, rows, [&](Slot& slot, std::span<std::byte> place, const Piece& piece) {
    const Strided<const std::byte*> from{host.base + piece.row * host.stride + piece.inside, host.stride};
    copy_runs({place.data(), piece.row_bytes}, from, piece.row_bytes, piece.rows);
    std::byte* to = device.base + piece.row * device.stride + piece.inside;
    slot.stream.copy_rows({to, device.stride, place.data(), piece.row_bytes, piece.row_bytes, piece.rows});
  });
}

void DeviceCopies::settle() noexcept {
  for (Slot& slot : slots_) {
    try {
      empty(slot);
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
  }
}

void DeviceCopies::finish() {
  settle();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void DeviceCopies::require_usable(std::uint64_t bytes) {
  if (error_) finish();
  if (bytes <= slot_bytes_) return take_memory();
  throw base::internal_error("copies between device and host: a piece of " + std::to_string(bytes) +
                             " bytes for slots of " + std::to_string(slot_bytes_));
}

std::span<const std::byte> DeviceCopies::fetch(gpu::ConstDeviceSpan from) {
  require_usable(from.size);
  Slot& slot = next_empty();
  const std::span<std::byte> place = slot.bytes.first(from.size);
  slot.stream.copy(place, from);
  slot.stream.synchronise();
  return place;
}

std::span<std::byte> DeviceCopies::room(std::uint64_t bytes) {
  require_usable(bytes);
  return next_empty().bytes.first(bytes);
}

void DeviceCopies::put(gpu::DeviceSpan to) {
  require_usable(to.size);
  Slot& slot = slots_[at_];
  slot.used = slot_bytes_;
  slot.stream.copy(to, slot.bytes.first(to.size));
}

}  // namespace cairn::io
