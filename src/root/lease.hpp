// The lease of a root, held by its one saver: takes, renews and releases it. Rules: lease_rules.hpp.
//
//   <root>/.cairn/epoch-<n>   created with O_EXCL by the saver that takes the lease; only that saver writes it.
//                             n is above all epochs there and in the root's manifests
//
// Rank 0 of a Checkpointer has a Lease; this file does not use MPI. The constructor starts to observe the root and
// writes nothing; only the holder writes. An internal thread renews a held lease, and watches the lease of another
// saver. The destructor ends the thread and releases the lease. Not thread-safe: one caller at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/clock.hpp"
#include "root/lease_folder.hpp"

namespace cairn::root {

class Lease {
 public:
  struct Setup {
    double seconds = 60;                      ///< lease time; the lease is renewed six times in it
    std::optional<double> wait_seconds = {};  ///< time to wait for a live saver; unset: as in LeaseRequest::wait
    /// Returns the highest epoch in the root's manifests; called when the lease is taken. Empty: 0.
    std::function<std::uint64_t()> highest_saved_epoch = {};
    os::Clock* clock = &os::Clock::of_system();  ///< must outlive the object
  };

  /// Looks once, and starts to watch if another saver has the lease. If the look fails, hold() looks again.
  /// Throws kUsage unless the lease time is above 0 and at most an hour, and as own_request().
  Lease(std::filesystem::path root, Setup setup);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Before every save: renews the lease, or takes it if it is not held; for waiting see lease_rules.hpp. A lease that
  /// ran out is taken again, unless another saver took it. Throws kState naming the holder if another saver is alive,
  /// or has taken over the lease (then always, until begin_life()), and kIo if the lease cannot be written.
  void hold();

  /// The next hold() takes a new epoch; the former epoch is held until then. That hold() also asks again for a lease
  /// that was lost to another saver.
  void begin_life() noexcept;

  /// Call before renames of a commit in the root, when everything to rename exists: throws kState if another saver took
  /// the lease, naming that saver, if its file is gone, or if it has run out by this process's own clock.
  void look();

  /// Rank-local, never throws: the error of look() if the lease was taken or removed, otherwise nothing.
  [[nodiscard]] std::optional<std::string> lost() noexcept;

  /// Harmless failures to renew since the last call.
  [[nodiscard]] std::vector<std::string> take_warnings();

  /// Part of the temporary names that the commits of this saver make in the root.
  [[nodiscard]] const std::string& nonce() const;
  /// The epoch held; 0 before the first hold().
  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] const std::filesystem::path& root() const;

  /// Whether the root was cleared since the lease was taken: required before a save (commit.hpp).
  [[nodiscard]] bool is_root_cleared() const;
  void set_root_cleared();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::root
