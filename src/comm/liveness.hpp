// Which ranks of a communicator still move, and what happens when none does.
//
// A rank that waits long, or works long by itself, sends beats: a table with two counters per rank, how often the rank said
// that it waits, and how often that it moved. Who receives a table takes the larger of each counter, and passes the result
// on with its next beat (failure detection by gossip: van Renesse, Minsky, Hayden, 1998). Beats go to the ranks at
// distances of 1, 2, 4 ...: a table reaches all in log2(ranks) hops, by many ways, so that a rank that hangs cuts nobody
// off. They begin when a rank has waited (or worked) a 64th of the limit, so that a save without a long phase sends none;
// each is 8 bytes per rank, to log2(ranks) ranks, 64 times per limit: at 4,096 ranks and 1,800 s a rank sends 14 KiB/s.
//
// A moved counter that grows is progress, on whatever rank. Without any for the limit, the ranks whose counters stood still
// for half of it are missing. Everybody else throws, and tells its neighbours, who need not wait as long; the communicator
// and those derived from it are dead then.
//
// Sends are synchronous, one at a time to a rank: so what is under way is bounded, and closing knows when nothing is.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "cairn/error.hpp"
#include "cairn/waiting.hpp"

namespace cairn::comm {

class Liveness {
 public:
  virtual ~Liveness() = default;
  Liveness() = default;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // All rank-local. On the thread that makes the communicator's calls, but for is_dead().

  /// A call begins and ends; between them silence counts.
  virtual void begin_call() = 0;
  virtual void end_call() = 0;
  /// A wait that is not over at once; only Wait calls these. poll() moves beats, and throws Error(kState) when the limit is
  /// over, when another rank gave up, or failed alone.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
  virtual void poll(const char* what, std::chrono::steady_clock::duration waited) = 0;

  /// Lets MPI move messages that are under way, for a wait that tests none of them.
  virtual void move_messages() = 0;

  /// Something moved on this rank; ranks that wait for it get a beat when it is time.
  virtual void progress() = 0;
  virtual void progress(std::string_view phase, const std::filesystem::path& file) = 0;
  /// As progress(), from work that may take long: a beat when it is time. Throws nothing.
  virtual void worked() noexcept = 0;
  /// Names the step of agree() that is under way.
  virtual void step(std::string_view name) = 0;

  /// This rank fails where the others cannot know it: they throw the text that this returns, instead of waiting. Dead from
  /// then on.
  virtual std::string fail(const std::string& why) = 0;
  [[nodiscard]] virtual bool is_dead() const = 0;
  /// Throws Error(kState) when dead.
  virtual void check() const = 0;
  /// As check(), at the beginning of a wait: a rank that comes late hears first whether the others have given it up.
  virtual void arrive() = 0;
};

}  // namespace cairn::comm
