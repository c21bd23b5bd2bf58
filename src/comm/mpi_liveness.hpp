// Liveness of the ranks of an MPI communicator; beats are messages on that communicator, with a separate tag.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/call_name.hpp"
#include "comm/communicator.hpp"
#include "comm/heartbeats.hpp"
#include "comm/hosts.hpp"
#include "comm/watchdog.hpp"

namespace cairn::comm::internal {

class MpiLiveness final : public Liveness {
 public:
  /// Rank-local; starts the watchdog's thread if there is a limit. `comm` must live until close().
  MpiLiveness(MPI_Comm comm, const Waiting& waiting);
  ~MpiLiveness() override;

  /// Collective: receives all beats in flight. False if other ranks did not come or are in a different call, or the
  /// communicator is dead: MPI may then still use the communicator's memory, which must not be freed. Later calls
  /// return the same value. Without a limit on waits, returns true at once.
  bool close() noexcept;

  /// Marks the communicator dead, for a reason that all ranks know.
  void lose(const std::string& why) noexcept;

  [[nodiscard]] const Waiting& waiting() const { return watchdog_.waiting(); }

  /// Rank-local. After this call, messages name the hosts of missing ranks.
  void know_hosts(std::shared_ptr<const Hosts> hosts) { hosts_ = std::move(hosts); }
  [[nodiscard]] const std::shared_ptr<const Hosts>& hosts() const { return hosts_; }

  /// Call when a barrier or reduction of all ranks is complete on this rank.
  void meet() { heartbeats_.meet(Clock::now()); }

  /// Receives the beats that have arrived. Throws if the communicator is dead, or if a sender gave up.
  void hear();

  void begin_call() override;
  void end_call() override;
  void begin_wait() override { watchdog_.begin_wait(); }
  void end_wait() override { watchdog_.end_wait(); }
  void poll(const char* what, std::chrono::steady_clock::duration waited) override;
  void move_messages() override;
  void progress() override;
  void progress(std::string_view phase, const std::filesystem::path& file) override;
  void worked() noexcept override;
  void step(std::string_view name) override;
  std::string fail(const std::string& why) override;
  void follow(const Liveness& other) override;
  [[nodiscard]] std::string reason() const override { return dead_text_; }
  [[nodiscard]] bool is_dead() const override { return dead_.load(std::memory_order_relaxed); }
  void check() const override;
  void arrive() override;

 private:
  using Clock = std::chrono::steady_clock;
  /// Receiver and content of a beat: the table; then, if the sender gave up, its rank (plus one) and reason.
  struct Neighbour {
    int rank = 0;
    std::vector<std::byte> message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  [[nodiscard]] bool is_watching() const { return watchdog_.limit_s() > 0; }
  void beat(Clock::time_point now);
  void send(Neighbour& to);
  void receive();
  void take_in(std::span<const std::byte> message);
  bool take_leave() noexcept;
  [[nodiscard]] std::string rank_name(int rank) const;
  [[noreturn]] void give_up(const char* what);
  void die(int culprit, const std::string& why) noexcept;

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  Watchdog watchdog_;
  Clock::duration interval_{};
  Clock::time_point last_beat_;
  Clock::time_point last_arrival_;
  Heartbeats heartbeats_;
  std::shared_ptr<const Hosts> hosts_;
  int calls_ = 0;  ///< number of nested calls in progress
  std::vector<Neighbour> neighbours_;
  std::vector<std::byte> incoming_;
  MPI_Request receiving_ = MPI_REQUEST_NULL;  ///< receives into incoming_
  std::unique_ptr<CallNumbers> leave_;        ///< buffer of the reduction in close(); left to MPI if close() gives up
  std::optional<bool> closed_;                ///< result of close()
  std::atomic<bool> dead_{false};
  std::string dead_text_;
};

}  // namespace cairn::comm::internal
