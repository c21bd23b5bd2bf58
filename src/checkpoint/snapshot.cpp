#include "checkpoint/snapshot.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "format/crc32c.hpp"

namespace cairn::checkpoint {
namespace {

/// Copies of two spans share no cache line.
constexpr std::uint64_t kAlignBytes = 64;
constexpr std::uint64_t kSampleBytes = 64;
constexpr std::uint64_t kMostSamples = 8;
constexpr std::uint64_t kBytesPerSample = 1 << 20;

/// Of the first, the last and some more bytes between them; never 0.
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

/// Copies to memory on a boundary of kAlignBytes that nobody reads soon: past the caches, which saves reading what is
/// overwritten. memcpy() does so from some size on, which depends on the machine and which most tensors do not have.
void copy_past_caches(std::byte* to, std::span<const std::byte> from) {
  std::size_t done = 0;
#ifdef __SSE2__
  for (; from.size() - done >= kAlignBytes; done += kAlignBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from.data() + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  _mm_sfence();
#endif
  if (done != from.size()) std::memcpy(to + done, from.data() + done, from.size() - done);
}

/// A box whose byte number `span.begin` is at `at`. The address of what lies before is never used.
std::span<std::byte> bytes_at(std::byte* at, const plan::MemorySpan& span, std::uint64_t box_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at) - span.begin;
  return {reinterpret_cast<std::byte*>(begin), box_bytes};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

SnapshotBytes snapshot_bytes(std::span<const plan::MemoryBox> memory, std::span<const plan::MemorySpan> spans) {
  SnapshotBytes bytes;
  for (std::size_t b = 0; b < spans.size(); ++b) {
    std::uint64_t& sum = plan::is_on_device(memory[b]) ? bytes.device : bytes.host;
    sum += base::round_up(spans[b].bytes(), kAlignBytes);
  }
  return bytes;
}

void Snapshot::reserve(const SnapshotBytes& bytes) {
  if (bytes.host > host_.span().size()) {
    host_ = {};  // before, or both would be there at a time
    host_ = os::PopulatedMemory(bytes.host);
  }
  if (bytes.device > pinned_.size()) {
    pinned_ = {};
    pinned_ = gpu::PinnedBuffer(bytes.device);
  }
}

void Snapshot::place(std::span<const plan::MemoryBox> memory, std::span<const plan::MemorySpan> spans) {
  boxes_.assign(memory.begin(), memory.end());
  digests_.assign(memory.size(), 0);
  pieces_.clear();
  copied_bytes_ = 0;
  std::byte* host = host_.span().data();
  std::byte* pinned = pinned_.span().data();
  for (std::size_t b = 0; b < boxes_.size(); ++b) {
    const plan::MemorySpan span = b < spans.size() ? spans[b] : plan::MemorySpan();
    plan::MemoryBox& box = boxes_[b];
    box.memory = Memory::kHost;
    box.bytes = {};
    if (span.bytes() == 0) continue;
    const bool is_on_device = plan::is_on_device(memory[b]);
    std::byte*& at = is_on_device ? pinned : host;
    box.bytes = bytes_at(at, span, memory[b].bytes.size());
    pieces_.push_back({memory[b].bytes.subspan(span.begin, span.bytes()), at, b, is_on_device});
    at += base::round_up(span.bytes(), kAlignBytes);
  }
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
  for (const Piece& piece : pieces_) {
    if (piece.is_on_device) continue;
    copy_past_caches(piece.to, piece.from);
    copied_bytes_ += piece.from.size();
  }
  if (is_on_its_way) stream_->synchronise();
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
