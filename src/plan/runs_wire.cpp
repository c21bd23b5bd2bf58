// Runs on the wire: file, local, memory rank and depth as 32-bit numbers; file_begin, memory_begin, run_bytes and bytes as
// 64-bit ones; then count, file stride and memory stride of each level. Little-endian, as all ranks of a job are.
#include <fmt/core.h>

#include <array>
#include <cstring>
#include <optional>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "plan/transfers.hpp"

namespace cairn::plan {
namespace {

struct Head {
  std::array<std::uint32_t, 4> numbers{};
  std::array<std::uint64_t, 4> sizes{};
};
static_assert(sizeof(Head) == kWireBytes && sizeof(Runs::Level) == kWireLevelBytes, "no padding");

void require(bool condition, const Runs& runs, const char* what) {
  if (!condition) throw Error(ErrorKind::kInternal, fmt::format("transfer of {}: {}", to_string(runs), what));
}

/// From a begin to past the last byte of a side; nothing when that does not fit, or when a level lies in the one inside it.
std::optional<std::uint64_t> checked_end(const Runs& runs, std::uint64_t begin, std::uint64_t Runs::Level::*stride) {
  std::optional<std::uint64_t> span = runs.run_bytes;
  for (std::size_t l = runs.depth; l-- > 0 && span;) {
    const Runs::Level& level = runs.levels[l];
    if (level.*stride < *span) return std::nullopt;
    const auto more = base::try_mul(level.count - 1, level.*stride);
    span = more ? base::try_add(*span, *more) : std::nullopt;
  }
  return span ? base::try_add(begin, *span) : std::nullopt;
}

std::span<const std::byte> take(std::span<const std::byte>& from, std::size_t bytes) {
  if (bytes > from.size()) {
    throw Error(ErrorKind::kInternal,
                fmt::format("a message of transfers ends {} bytes too soon", bytes - from.size()));
  }
  const auto taken = from.first(bytes);
  from = from.subspan(bytes);
  return taken;
}

}  // namespace

std::string to_string(const Runs& runs) {
  return fmt::format("{} bytes from memory of rank {} to extents of rank {}", runs.bytes, runs.memory_rank,
                     runs.file_rank);
}

void check_runs(const Runs& runs) {
  require(runs.depth <= Runs::kMaxDepth, runs, "it has too many levels");
  require(runs.run_bytes != 0, runs, "its runs have no bytes");
  std::optional<std::uint64_t> bytes = runs.run_bytes;
  for (std::size_t l = 0; l < runs.depth; ++l) {
    require(runs.levels[l].count > 1, runs, "a level has no more than one run");
    if (bytes) bytes = base::try_mul(*bytes, runs.levels[l].count);
  }
  require(bytes == runs.bytes, runs, "its levels do not add up to these bytes");
  require(checked_end(runs, runs.file_begin, &Runs::Level::file_stride).has_value(), runs,
          "its runs in the file lie in each other, or end beyond 2^64");
  require(checked_end(runs, runs.memory_begin, &Runs::Level::memory_stride).has_value(), runs,
          "its runs in memory lie in each other, or end beyond 2^64");
}

void append_runs(base::Bytes& out, const Runs& runs) {
  const Head head{{runs.file, runs.local, base::narrow<std::uint32_t>(runs.memory_rank, "memory rank"), runs.depth},
                  {runs.file_begin, runs.memory_begin, runs.run_bytes, runs.bytes}};
  const auto append = [&](const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    out.insert(out.end(), from, from + bytes);
  };
  append(&head, sizeof head);
  append(runs.levels.data(), runs.depth * sizeof(Runs::Level));
}

std::vector<Runs> parse_runs(std::span<const std::byte> bytes, int file_rank) {
  std::vector<Runs> out;
  while (!bytes.empty()) {
    Head head;
    std::memcpy(&head, take(bytes, sizeof head).data(), sizeof head);
    Runs runs;
    runs.file = head.numbers[0];
    runs.local = head.numbers[1];
    runs.memory_rank = base::narrow<int>(head.numbers[2], "memory rank of a transfer");
    runs.depth = head.numbers[3];
    runs.file_rank = file_rank;
    runs.file_begin = head.sizes[0];
    runs.memory_begin = head.sizes[1];
    runs.run_bytes = head.sizes[2];
    runs.bytes = head.sizes[3];
    require(runs.depth <= Runs::kMaxDepth, runs, "it has too many levels");
    const auto levels = take(bytes, runs.depth * sizeof(Runs::Level));
    if (runs.depth != 0) std::memcpy(runs.levels.data(), levels.data(), levels.size());
    check_runs(runs);
    out.push_back(runs);
  }
  return out;
}

}  // namespace cairn::plan
