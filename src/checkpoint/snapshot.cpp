#include "checkpoint/snapshot.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "base/checked.hpp"
#include "format/crc32c.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kLineBytes = 64;  ///< bytes of a cache line
constexpr std::uint64_t kSampleBytes = 64;
constexpr std::uint64_t kMostSamples = 8;
constexpr std::uint64_t kBytesPerSample = 1 << 20;
/// Waiting threads are notified each time this many bytes or more have been copied.
constexpr std::uint64_t kToldBytes = 32ULL << 20;

/// Checksum of the first, the last and some bytes between them; never 0.
std::uint32_t digest_of_samples(std::span<const std::byte> bytes) {
  const std::uint64_t samples = std::min(kMostSamples, 2 + bytes.size() / kBytesPerSample);
  format::RunningCrc32c digest;
  if (bytes.size() <= samples * kSampleBytes) {
    digest.add(bytes);
  } else {
    const std::uint64_t last = bytes.size() - kSampleBytes;
    for (std::uint64_t s = 0; s < samples; ++s) {
      digest.add(bytes.subspan(last / (samples - 1) * s, kSampleBytes));
    }
    digest.add(bytes.last(kSampleBytes));
  }
  return std::max<std::uint32_t>(1, digest.value());
}

#ifdef __SSE2__
/// Copies a cache line. Requires: `to` is aligned to a cache line.
void stream_line(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i first = _mm_loadu_si128(source);
  const __m128i second = _mm_loadu_si128(source + 1);
  const __m128i third = _mm_loadu_si128(source + 2);
  const __m128i fourth = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, first);
  _mm_stream_si128(target + 1, second);
  _mm_stream_si128(target + 2, third);
  _mm_stream_si128(target + 3, fourth);
}
#endif

/// Copies past the caches to memory that is not read soon: the overwritten lines need not be read first. memcpy()
/// bypasses caches only above a size that depends on the machine and that most tensors do not reach. Copies at several
/// places in turn, so that more than one memory bank is busy: 5 to 10 % faster than from one end to the other (2-core
/// development machine, November 2026).
void copy_past_caches(std::byte* to, std::span<const std::byte> from) {
#ifdef __SSE2__
  constexpr std::size_t kPlaces = 4;
  constexpr std::size_t kApartBytes = 64 << 10;
  const std::size_t before_line = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t head = std::min(before_line, from.size());
  std::memcpy(to, from.data(), head);
  to += head;
  from = from.subspan(head);
  for (; from.size() >= kPlaces * kApartBytes;
       from = from.subspan(kPlaces * kApartBytes), to += kPlaces * kApartBytes) {
    for (std::size_t at = 0; at < kApartBytes; at += kLineBytes) {
      for (std::size_t place = at; place < kPlaces * kApartBytes; place += kApartBytes) {
        stream_line(to + place, from.data() + place);
      }
    }
  }
  for (; from.size() >= kLineBytes; from = from.subspan(kLineBytes), to += kLineBytes) stream_line(to, from.data());
  _mm_sfence();
#endif
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

/// Calls visit(box, is_on_device, begin, end) for each part that is not empty, in the order of the snapshot's host or
/// pinned memory, where it occupies [begin, end).
template <class Visit>
void for_each_part(const SnapshotParts& parts, const Visit& visit) {
  struct Part {
    std::size_t box = 0;
    io::BoxInFile first;  ///< place of the first byte of the span
  };
  constexpr std::uint32_t kNoFile = std::numeric_limits<std::uint32_t>::max();  // parts without a file come last
  std::vector<Part> order;
  for (std::size_t b = 0; b < parts.spans.size(); ++b) {
    if (parts.spans[b].bytes() == 0) continue;
    const bool is_placed = b < parts.places.size() && parts.places[b].has_value();
    const io::BoxInFile box = is_placed ? *parts.places[b] : io::BoxInFile{kNoFile, 0};
    order.push_back({b, {box.file, box.file == kNoFile ? 0 : box.offset + parts.spans[b].begin}});
  }
  std::stable_sort(order.begin(), order.end(), [](const Part& a, const Part& b) {
    return std::pair(a.first.file, a.first.offset) < std::pair(b.first.file, b.first.offset);
  });
  std::uint64_t host = 0;
  std::uint64_t device = 0;
  for (const Part& part : order) {
    const bool is_on_device = plan::is_on_device(parts.memory[part.box]);
    std::uint64_t& at = is_on_device ? device : host;
    if (part.first.file == kNoFile) {
      at = base::round_up(at, kLineBytes);
    } else {
      at += (part.first.offset - at) % io::BypassRuns::kPageBytes;
    }
    const std::uint64_t end = at + parts.spans[part.box].bytes();
    visit(part.box, is_on_device, at, end);
    at = end;
  }
}

/// The bytes of a box whose byte `span.begin` is at `at`. Earlier addresses are never used.
std::span<std::byte> bytes_at(std::byte* at, const plan::MemorySpan& span, std::uint64_t box_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at) - span.begin;
  return {reinterpret_cast<std::byte*>(begin), box_bytes};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

SnapshotBytes snapshot_bytes(const SnapshotParts& parts) {
  SnapshotBytes bytes;
  for_each_part(parts, [&](std::size_t, bool is_on_device, std::uint64_t, std::uint64_t end) {
    (is_on_device ? bytes.device : bytes.host) = end;
  });
  return bytes;
}

void Snapshot::reserve(const SnapshotBytes& bytes) {
  if (bytes.host > host_.span().size()) {
    host_ = {};  // freed first; otherwise both would exist at once
    host_ = os::PopulatedMemory(bytes.host);
  }
  if (bytes.device > pinned_.size()) {
    pinned_ = {};
    pinned_ = gpu::PinnedBuffer(bytes.device);
  }
}

void Snapshot::place(const SnapshotParts& parts) {
  boxes_.assign(parts.memory.begin(), parts.memory.end());
  for (plan::MemoryBox& box : boxes_) {
    box.memory = Memory::kHost;
    box.bytes = {};
  }
  digests_.assign(boxes_.size(), 0);
  pieces_.clear();
  copied_bytes_ = 0;
  for_each_part(parts, [&](std::size_t b, bool is_on_device, std::uint64_t begin, std::uint64_t) {
    const plan::MemoryBox& from = parts.memory[b];
    const plan::MemorySpan& span = parts.spans[b];
    std::byte* const at = (is_on_device ? pinned_.span() : host_.span()).data() + begin;
    boxes_[b].bytes = bytes_at(at, span, from.bytes.size());
    pieces_.push_back({from.bytes.subspan(span.begin, span.bytes()), at, b, is_on_device});
  });
  const std::lock_guard lock(progress_->mutex);
  progress_->host_end = nullptr;
  progress_->is_over = false;
}

void Snapshot::copy() {
  bool is_on_its_way = false;
  for (const Piece& piece : pieces_) {
    if (!piece.is_on_device) continue;
    if (!stream_) stream_.emplace();
    stream_->copy(std::span(piece.to, piece.from.size()), gpu::ConstDeviceSpan{piece.from.data(), piece.from.size()});
    copied_bytes_ += piece.from.size();
    is_on_its_way = true;
  }
  for (const Piece& piece : pieces_) {
    if (!piece.is_on_device && boxes_[piece.box].strides.empty()) digests_[piece.box] = digest_of_samples(piece.from);
  }
  std::uint64_t untold_bytes = 0;
  for (const Piece& piece : pieces_) {
    if (piece.is_on_device) continue;
    for (std::uint64_t done = 0; done < piece.from.size();) {
      const std::uint64_t bytes = std::min(piece.from.size() - done, kToldBytes);
      copy_past_caches(piece.to + done, piece.from.subspan(done, bytes));
      done += bytes;
      copied_bytes_ += bytes;
      untold_bytes += bytes;
      if (untold_bytes < kToldBytes) continue;
      note_copied(piece.to + done);
      untold_bytes = 0;
    }
  }
  if (is_on_its_way) stream_->synchronise();
}

void Snapshot::note_copied(const std::byte* end) {
  {
    const std::lock_guard lock(progress_->mutex);
    progress_->host_end = end;
  }
  progress_->changed.notify_all();
}

void Snapshot::end_copy() {
  const std::lock_guard lock(progress_->mutex);
  progress_->is_over = true;
  progress_->changed.notify_all();
}

bool Snapshot::wait_for(std::span<const std::byte> bytes, std::chrono::milliseconds most) const {
  const std::span<std::byte> host = host_.span();
  const std::byte* const end = bytes.data() + bytes.size();
  const bool is_in_host = std::less_equal<>()(host.data(), bytes.data()) &&
                          std::less_equal<>()(end, host.data() + host.size());  // the rest is copied by a device, in
                                                                                // any order
  std::unique_lock lock(progress_->mutex);
  return progress_->changed.wait_for(lock, most, [&] {
    if (progress_->is_over) return true;
    return is_in_host && progress_->host_end != nullptr && std::less_equal<>()(end, progress_->host_end);
  });
}

void Snapshot::wait_for_end() const {
  std::unique_lock lock(progress_->mutex);
  progress_->changed.wait(lock, [&] { return progress_->is_over; });
}

std::optional<std::size_t> Snapshot::first_changed() const {
  for (const Piece& piece : pieces_) {
    const std::uint32_t digest = digests_[piece.box];
    if (digest != 0 && digest_of_samples({piece.to, piece.from.size()}) != digest) return piece.box;
  }
  return std::nullopt;
}

void Snapshot::release() { *this = {}; }

}  // namespace cairn::checkpoint
