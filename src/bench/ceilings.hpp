// The ceilings of the machine, measured by the ranks that save or load: raw storage, memory copies, checksums and
// messages. All data is compared after the clock has stopped; a difference is Error(kIntegrity).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "bench/raw_file.hpp"
#include "comm/communicator.hpp"

namespace cairn::bench {

/// Bytes of all ranks, and seconds from a barrier to the ends of the last and the first rank.
struct Rate {
  std::uint64_t bytes = 0;
  double seconds = 0;
  double seconds_first = 0;
  double busy_share = 0;  ///< busy share of processors on the busiest host in this time, counting all processes

  /// Bytes over the seconds of the last rank; 0 if nothing was measured.
  [[nodiscard]] double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

/// Collective. Times `work` on each rank, after a barrier; an error on one rank is thrown on all.
Rate timed(comm::Communicator& group, std::uint64_t bytes, const char* step, const std::function<void()>& work);

/// Collective. As timed(), for collective work, which must throw its errors on all ranks.
Rate timed_together(comm::Communicator& group, std::uint64_t bytes, const std::function<void()>& work);

/// The raw files of a run: written by one group of ranks, and read by groups of any size.
class RawStorage {
 public:
  /// `memory` is kept for the whole run, and must outlive the object.
  RawStorage(std::filesystem::path directory, const RawOptions& options, RankMemory& memory)
      : directory_(std::move(directory)), options_(options), memory_(memory) {}

  /// Rank-local, with the same arguments on every rank of the world: sets the files for the next write() and read().
  void prepare(std::uint64_t total_bytes, int writers);
  /// Collective over the `writers` ranks. Makes new files at each call; the clock stops after the last fsync.
  Rate write(comm::Communicator& writers, RawWay way = RawWay::kPlain);
  /// Collective over any number of ranks; call after write().
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

/// Collective. All ranks copy their own memory at the same time.
Rate memcpy_ceiling(comm::Communicator& group);
/// Collective. All ranks compute CRC-32C of their own memory at the same time.
Rate crc_ceiling(comm::Communicator& group);
/// Collective. All ranks send and receive large messages at the same time, with one partner after the other (at most
/// eight, spread over the ranks). Counts the sent bytes; a single rank has a rate of 0.
Rate exchange_ceiling(comm::Communicator& group);

}  // namespace cairn::bench
