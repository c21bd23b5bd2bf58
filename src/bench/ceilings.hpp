// What the machine could do at most, measured by the ranks that save or load: raw storage, memory copies, checksums,
// messages. Every figure is of data that was compared after the clock had stopped; a difference is Error(kIntegrity).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "bench/raw_file.hpp"
#include "comm/communicator.hpp"

namespace cairn::bench {

/// Bytes of all ranks, seconds from a barrier to the end of the last and of the first rank.
struct Rate {
  std::uint64_t bytes = 0;
  double seconds = 0;
  double seconds_first = 0;
  double busy_share = 0;  ///< of the processors of the busiest host meanwhile, whoever used them

  /// Bytes over the seconds of the last rank; 0 when nothing was measured.
  [[nodiscard]] double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

/// Collective. The work between a barrier and its end on each rank; what it throws on some ranks all throw.
Rate timed(comm::Communicator& group, std::uint64_t bytes, const char* step, const std::function<void()>& work);

/// Collective, for collective work: as timed(), and what the work throws it throws on all ranks by itself.
Rate timed_together(comm::Communicator& group, std::uint64_t bytes, const std::function<void()>& work);

/// The raw files of a run: written by one group of ranks, read by others.
class RawStorage {
 public:
  /// `memory`: what the rank keeps for the run; it must outlive the object.
  RawStorage(std::filesystem::path directory, const RawOptions& options, RankMemory& memory)
      : directory_(std::move(directory)), options_(options), memory_(memory) {}

  /// Rank-local, alike on every rank of the world: what the next write() writes and later read()s read.
  void prepare(std::uint64_t total_bytes, int writers);
  /// Collective over the `writers` ranks. New files each time; the time ends with the last fsync.
  Rate write(comm::Communicator& writers, RawWay way = RawWay::kPlain);
  /// Collective over any number of ranks, after write().
  Rate read(comm::Communicator& readers, RawWay way = RawWay::kPlain);

  [[nodiscard]] bool is_buffered() const { return options_.method == RawMethod::kBuffered; }
  [[nodiscard]] std::vector<std::filesystem::path> files() const;

 private:
  std::filesystem::path directory_;
  RawOptions options_;
  RankMemory& memory_;
  RawLayout layout_{0, 1};
  std::uint64_t seed_ = 0;
};

/// Collective. Each rank copies its own memory at the same time as the others.
Rate memcpy_ceiling(comm::Communicator& group);
/// Collective. Each rank takes CRC-32C of its own memory.
Rate crc_ceiling(comm::Communicator& group);
/// Collective. All ranks send and receive large messages at the same time, to one partner after the other (at most
/// eight, spread over the ranks); the bytes are those that were sent. Zero on one rank.
Rate exchange_ceiling(comm::Communicator& group);

}  // namespace cairn::bench
