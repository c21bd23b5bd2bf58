// Common parts of the engines: the checks of a round, the order in which a rank goes through its files, and a thread
// for blocking calls.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "io/engine.hpp"
#include "plan/extents.hpp"

namespace cairn::io {

/// For example: "'dir/file', bytes 0 to 4096".
inline std::string describe(const EngineFile& file, std::uint64_t offset, std::uint64_t bytes) {
  return "'" + base::printable(file.path.string()) + "', bytes " + std::to_string(offset) + " to " +
         std::to_string(offset + bytes);
}

/// Throws an Error of `kind` for a wrong file size; `when` begins the message. Skips files that this rank cannot see.
void check_size(const EngineFile& file, const char* when, ErrorKind kind);

/// Throws Error(kInternal) unless `ops` ascend by (file, offset) without overlap, each inside its file.
template <class Op>
void check_round(std::span<const Op> ops, std::span<const EngineFile> files) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (op.file >= files.size()) {
      throw base::internal_error("I/O round: file number " + std::to_string(op.file) + " of " +
                                 std::to_string(files.size()));
    }
    const EngineFile& file = files[op.file];
    if (op.offset > file.size_bytes || op.data.size() > file.size_bytes - op.offset) {
      throw base::internal_error("I/O round: " + describe(file, op.offset, op.data.size()) + ", lies outside its " +
                                 std::to_string(file.size_bytes) + " bytes");
    }
    if (i == 0 || ops[i - 1].file < op.file) continue;
    if (ops[i - 1].file > op.file || ops[i - 1].offset + ops[i - 1].data.size() > op.offset) {
      throw base::internal_error("I/O round: " + describe(file, op.offset, op.data.size()) +
                                 ", comes after an operation that it should come before");
    }
  }
}

// The files of a rank, and the order in which the rank goes through them: a pure function of the extent map.
//
// A file's aggregators follow each other in the list of aggregators; the next file's aggregators begin with the last of
// them or the one after it. So the files of a group (plan/extents.hpp) that several ranks share form a chain: each has
// at most one rank in common with the next. Every rank goes through its files by turn, and by number inside a turn:
//
//   turn 0: shared files number 0, 2, 4 ..., counted through the chains of all groups
//   turn 1: shared files number 1, 3, 5 ...
//   turn 2: files of this rank alone
//
// No deadlock: (turn, file) is one total order for all ranks. Consider the first file in which any rank waits: the
// other ranks of this file could only be waiting in earlier files, and no rank waits there, so all of them arrive. No
// chain of waiting either: files of one turn and group have no rank in common, so a rank waits for at most one other
// file of the group. (In plain ascending order every file would wait for the file before it, from first to last.)

struct FileTurn {
  std::uint32_t file = 0;
  int first = 0;  ///< ranks first..last open the file together
  int last = 0;
  int turn = 0;
};

/// The aggregators of each file, by file number.
using FileAggregators = std::span<const plan::ExtentMap::AggregatorRange>;

/// The files in which `rank` is between the first and the last aggregator, in the order in which the rank uses them. If
/// one opening serves the extents of several batches, files of a turn may have ranks in common: ranks then wait longer,
/// but still without deadlock.
std::vector<FileTurn> file_turns(FileAggregators aggregators, int rank);

/// The rank that creates the file, and checks its size for all ranks: the file's first aggregator, or, for a file
/// without bytes or extents, a rank chosen by file number.
int creator_of_file(FileAggregators aggregators, std::uint32_t file, int ranks);

/// A thread that makes one rank's blocking I/O calls, round by round in order, while the rank does other work. The
/// thread does not communicate: its first exception is kept for rethrow().
class RoundWorker {
 public:
  /// Starts the thread; throws std::system_error if the system refuses another thread.
  RoundWorker();
  /// Drops rounds that have not begun and waits for the one in progress.
  ~RoundWorker();
  RoundWorker(const RoundWorker&) = delete;
  RoundWorker& operator=(const RoundWorker&) = delete;

  void begin(std::function<void()> round);
  /// Sleeps until at most `unfinished` rounds are unfinished. A failure finishes all rounds: later ones are dropped.
  void wait(std::size_t unfinished);
  /// Throws the exception of the first round that failed, if any.
  void rethrow();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> rounds_;  ///< rounds not begun yet
  std::size_t unfinished_ = 0;                ///< size of rounds_, plus the round in progress
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  ///< last, because it uses the other members
};

}  // namespace cairn::io
