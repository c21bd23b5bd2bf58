#include "bench/raw_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/checked.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/system_calls.hpp"

namespace cairn::bench {

using os::throw_system_error;

std::uint64_t RawLayout::begin_of(int index, int shares) const {
  const std::uint64_t pages = base::ceil_div(total_bytes_, kRawPageBytes);
  const auto count = static_cast<std::uint64_t>(shares);
  const auto at = static_cast<std::uint64_t>(index);
  const std::uint64_t first_page = pages / count * at + std::min(at, pages % count);
  return std::min(first_page * kRawPageBytes, total_bytes_);
}

std::uint64_t RawLayout::file_bytes(int file) const { return begin_of(file + 1, writers_) - begin_of(file, writers_); }

std::vector<RawPiece> RawLayout::pieces_of(int rank, int readers) const {
  const std::uint64_t begin = begin_of(rank, readers);
  const std::uint64_t end = begin_of(rank + 1, readers);
  std::vector<RawPiece> pieces;
  for (int file = 0; file < writers_; ++file) {
    const std::uint64_t file_begin = begin_of(file, writers_);
    const std::uint64_t from = std::max(begin, file_begin);
    const std::uint64_t to = std::min(end, begin_of(file + 1, writers_));
    if (from < to) pieces.push_back({static_cast<std::uint32_t>(file), from - file_begin, to - from});
  }
  return pieces;
}

RawPattern::RawPattern(std::uint64_t seed, std::uint64_t period_bytes) : seed_(seed), period_(period_bytes) {
  std::mt19937_64 random(seed);
  for (std::uint64_t at = 0; at < period_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(period_.span().data() + at, &word, sizeof word);
  }
}

void RawPattern::fill(std::span<std::byte> buffer) const {
  for (std::uint64_t at = 0; at < buffer.size(); at += period_.size()) {
    const std::uint64_t bytes = std::min(buffer.size() - at, period_.size());
    std::memcpy(buffer.data() + at, period_.span().data(), bytes);
  }
}

std::uint64_t RawPattern::mark_of(std::uint32_t file, std::uint64_t page) const {
  return base::mix64(seed_ + (page * 65536 + file + 1) * base::kGoldenGamma);
}

void RawPattern::stamp(std::span<std::byte> buffer, std::uint32_t file, std::uint64_t offset_bytes) const {
  for (std::uint64_t at = 0; at < buffer.size(); at += kRawPageBytes) {
    const std::uint64_t mark = mark_of(file, (offset_bytes + at) / kRawPageBytes);
    std::memcpy(buffer.data() + at, &mark, std::min<std::uint64_t>(sizeof mark, buffer.size() - at));
  }
}

std::optional<std::uint64_t> RawPattern::first_difference(std::span<const std::byte> found, std::uint32_t file,
                                                          std::uint64_t offset_bytes) const {
  for (std::uint64_t at = 0; at < found.size(); at += kRawPageBytes) {
    const std::uint64_t bytes = std::min(kRawPageBytes, found.size() - at);
    const std::uint64_t mark = mark_of(file, (offset_bytes + at) / kRawPageBytes);
    const std::uint64_t marked = std::min<std::uint64_t>(sizeof mark, bytes);
    const std::byte* expected = period_.span().data() + (offset_bytes + at) % period_.size();
    const bool equal = std::memcmp(found.data() + at, &mark, marked) == 0 &&
                       std::memcmp(found.data() + at + marked, expected + marked, bytes - marked) == 0;
    if (!equal) return offset_bytes + at;
  }
  return std::nullopt;
}

namespace {

// Larger than processor caches; used as a ring.
constexpr std::uint64_t kSourceBytes = 256ULL << 20;

os::Descriptor create(const std::filesystem::path& path, RawMethod method) {
  std::filesystem::remove(path);
  return open_raw(path, O_WRONLY | O_CREAT | O_EXCL, method);
}

}  // namespace

std::filesystem::path raw_path(const std::filesystem::path& directory, std::uint32_t file) {
  return directory / fmt::format("raw-{:05}", file);
}

std::uint64_t bytes_to_read(std::span<const RawPiece> pieces) {
  std::uint64_t bytes = 0;
  for (const RawPiece& piece : pieces) bytes += base::round_up(piece.size_bytes, kRawPageBytes);
  return bytes;
}

RawWriter::RawWriter(const std::filesystem::path& path, std::uint32_t file, std::uint64_t bytes,
                     const RawOptions& options, const RawPattern& pattern, RankMemory& memory, RawWay way)
    : path_(path),
      file_(file),
      bytes_(bytes),
      options_(options),
      pattern_(pattern),
      descriptor_(create(path, options.method)),
      transfer_(make_raw_transfer(options.method, options.in_flight)) {
  // Reserves space, as the engines do, so that a full disk is detected before data moves. If the file system cannot
  // reserve, the writes allocate space.
  const auto space = static_cast<off_t>(base::round_up(bytes, kRawPageBytes));
  if (options.method != RawMethod::kMemory && space > 0) {
    const int error = os::call_again([&] { return ::fallocate(descriptor_.get(), 0, 0, space); });
    if (error != 0 && !os::is_unsupported(error)) throw_system_error("reserving space for", path, error);
  }
  const std::uint64_t slots = std::min<std::uint64_t>(options.in_flight, base::ceil_div(bytes, options.request_bytes));
  buffers_ = memory.buffers(slots, options.request_bytes);
  for (base::AlignedBuffer& buffer : buffers_) pattern.fill(buffer.span());
  if (way == RawWay::kPlain) return;
  source_ = memory.take(base::round_up(std::min(bytes, kSourceBytes), options.request_bytes));
  pattern.fill(source_);
}

void RawWriter::write() {
  std::uint64_t at = 0;
  transfer_->run([&](unsigned slot) -> std::optional<RawRequest> {
    if (at >= bytes_ || slot >= buffers_.size()) return std::nullopt;
    // The last page is written whole, and the file is truncated afterwards.
    const std::uint64_t size = std::min(options_.request_bytes, base::round_up(bytes_ - at, kRawPageBytes));
    const auto data = buffers_[slot].span().first(size);
    if (!source_.empty()) std::memcpy(data.data(), source_.data() + at % source_.size(), size);
    pattern_.stamp(data, file_, at);
    const RawRequest request{descriptor_.get(), true, data.data(), size, at, size};
    at += size;
    return request;
  });
  if (at != bytes_ && ::ftruncate(descriptor_.get(), static_cast<off_t>(bytes_)) != 0) {
    throw_system_error("cutting", path_, errno);
  }
  if (::fsync(descriptor_.get()) != 0) throw_system_error("fsync of", path_, errno);
}

RawReader::RawReader(const std::filesystem::path& directory, std::vector<RawPiece> pieces, const RawOptions& options,
                     RankMemory& memory, RawWay way)
    : directory_(directory), options_(options), transfer_(make_raw_transfer(options.method, options.in_flight)) {
  memory_ = memory.take(bytes_to_read(pieces));
  std::uint64_t bytes = 0;
  for (const RawPiece& piece : pieces) {
    parts_.push_back({open_raw(raw_path(directory, piece.file), O_RDONLY, options.method), piece, bytes});
    bytes += base::round_up(piece.size_bytes, kRawPageBytes);
  }
  std::ranges::fill(memory_, std::byte{0});  // no page of a pattern is all zeros
  if (way == RawWay::kPlain) return;
  for (base::AlignedBuffer& buffer : memory.buffers(options.in_flight, options.request_bytes))
    slots_.push_back({buffer.span(), {}});
}

void RawReader::copy_out(Slot& slot) {
  if (!slot.to.empty()) std::memcpy(slot.to.data(), slot.buffer.data(), slot.to.size());
  slot.to = {};
}

void RawReader::read() {
  std::size_t part = 0;
  std::uint64_t at = 0;
  transfer_->run([&](unsigned number) -> std::optional<RawRequest> {
    Slot* const slot = slots_.empty() ? nullptr : &slots_[number];
    if (slot != nullptr) copy_out(*slot);  // the bytes of its last request
    while (part < parts_.size() && at >= parts_[part].piece.size_bytes) {
      ++part;
      at = 0;
    }
    if (part == parts_.size()) return std::nullopt;
    const Part& from = parts_[part];
    const std::uint64_t needed = std::min(options_.request_bytes, from.piece.size_bytes - at);
    std::byte* data = memory_.data() + from.begin + at;
    if (slot != nullptr) {
      slot->to = {data, needed};
      data = slot->buffer.data();
    }
    const RawRequest request{from.descriptor.get(),        false, data, base::round_up(needed, kRawPageBytes),
                             from.piece.offset_bytes + at, needed};
    at += needed;
    return request;
  });
  if (os::check_fault("bench.raw", directory_) && !memory_.empty()) memory_[memory_.size() / 2] ^= std::byte{1};
}

std::optional<std::string> RawReader::fault(const RawPattern& pattern) const {
  for (const Part& part : parts_) {
    const auto found = memory_.subspan(part.begin, part.piece.size_bytes);
    if (const auto at = pattern.first_difference(found, part.piece.file, part.piece.offset_bytes)) {
      return fmt::format("'{}' at byte {}: not what was written",
                         base::printable(raw_path(directory_, part.piece.file).string()), *at);
    }
  }
  return std::nullopt;
}

}  // namespace cairn::bench
