// The shared state behind simulated communicators: the ranks that have ended, the event each rank waits for, and the
// groups with their boards and mailboxes. One mutex guards everything; each rank sleeps on its own condition variable.
//
// A send completes when it is received, as it may in MPI, so code that relies on buffering hangs here as it may with
// MPI. If all ranks wait and none can continue, all get an Error that lists what each rank waits for.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cairn/error.hpp"

namespace cairn::comm::internal {

/// Thrown on a rank that would wait for ever.
class PeerGone : public Error {
 public:
  explicit PeerGone(const std::string& message) : Error(ErrorKind::kInternal, message) {}
};

enum class Progress { kReady, kPending, kHopeless };

/// One end of a point-to-point message: a send or a receive that was posted.
struct Post {
  std::span<const std::byte> from;  ///< bytes of a send
  std::span<std::byte> into;        ///< buffer of a receive
  bool complete = false;
  std::string problem;  ///< problem of a receive: sizes differ
};

struct Channel {
  std::deque<std::shared_ptr<Post>> sends;
  std::deque<std::shared_ptr<Post>> receives;
};

/// Serves one collective at a time: each rank puts up a pointer to its contribution
/// and reads the others' contributions; all ranks leave together.
struct Board {
  std::string operation;
  int first_rank = 0;
  std::vector<const void*> slots;
  std::vector<bool> arrived;
  int arrivals = 0;
  int departures = 0;
  std::uint64_t ready_rounds = 0;
  std::uint64_t finished_rounds = 0;
};

struct Group {
  std::string name;
  std::vector<int> members;  ///< world ranks
  Board board;
  std::map<std::tuple<int, int, int>, Channel> channels;  ///< by sender, receiver (ranks in the group) and tag
};

class World {
 public:
  explicit World(int ranks);

  std::mutex mutex;
  int ranks_per_node = 1;  ///< set before the ranks begin

  // These calls require that the mutex is held.
  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members);
  /// Sleeps until `poll` is ready; throws PeerGone if that cannot happen any more, or if all ranks wait.
  void wait(std::unique_lock<std::mutex>& lock, int world_rank, const std::string& what,
            const std::function<Progress()>& poll);
  void wake(int world_rank) { changed_[index(world_rank)].notify_all(); }
  void wake_all();
  [[nodiscard]] bool has_ended(int world_rank) const { return ended_[index(world_rank)]; }
  [[nodiscard]] bool was_woken(int world_rank) const { return woken_[index(world_rank)]; }
  void mark_woken(int world_rank) { woken_[index(world_rank)] = true; }

  /// These calls lock the mutex themselves. The rank's thread reports that it begins or has ended.
  void begin(int world_rank);
  void end(int world_rank);

 private:
  struct Waiter {
    int world_rank;
    std::string what;
    const std::function<Progress()>* poll;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  /// Records a deadlock when all ranks wait in vain.
  void look_for_dead_lock();

  std::vector<std::condition_variable> changed_;
  std::vector<bool> ended_;
  std::vector<bool> woken_;
  std::vector<std::thread::id> threads_;
  std::map<std::string, std::shared_ptr<Group>> groups_;
  std::list<Waiter> waiters_;
  bool has_helper_threads_ = false;  ///< there are threads other than the ranks', so waiting ranks prove nothing
  std::string dead_lock_;
};

}  // namespace cairn::comm::internal
