// The one saver of a root: takes, renews and releases its lease (lease_folder.hpp says when one may be taken).
//
//   <root>/.cairn/epoch-<n>   made by exclusive creation by who takes the lease for the n-th time, and written by
//                             nobody else; n is above all epochs there and in the root's manifests
//
// Rank 0 of a Checkpointer has one; no MPI here. Without a lease nothing is written, also not by the observing that
// begins with the object. One small thread renews a lease that is held, and watches one that somebody else holds; it
// ends with the object, which releases the lease. One thread at a time may call; the small one is not counted.
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
    double seconds = 60;                      ///< lease time; renewed six times in it
    std::optional<double> wait_seconds = {};  ///< how long to wait for a saver that lives; nothing: LeaseRequest::wait
    /// Highest epoch in the root's manifests, asked when the lease is taken. Nothing: 0.
    std::function<std::uint64_t()> highest_saved_epoch = {};
    os::Clock* clock = &os::Clock::of_system();  ///< must outlive the object
  };

  /// Looks once, and watches from now on when somebody has the lease. A look that fails is left to hold(). Throws
  /// kUsage for a lease time that is not above 0 and at most an hour.
  Lease(std::filesystem::path root, Setup setup);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Before every save: takes the lease when it is not held, waiting as lease_folder.hpp says, else renews it; a lease
  /// that ran out and that nobody took is taken again. Throws kState naming the holder when another saver lives, or
  /// took the lease of this one (then for good, but for a new life), kIo when the lease cannot be written.
  void hold();

  /// A new life begins: the next hold() takes an epoch of its own, and does not let go of the one before until it has
  /// it. Where another saver has taken the lease of the life before, it is asked for anew.
  void begin_life() noexcept;

  /// Before every rename in the root, after all that will be renamed is there: throws kState when another saver has
  /// taken the lease, naming it, or when it has run out by this process's own clock.
  void look();

  /// Rank-local, never throws: the error of look() when another saver has taken the lease, or nothing.
  [[nodiscard]] std::optional<std::string> lost() noexcept;

  /// Renewals that failed since the last call, and did no harm.
  [[nodiscard]] std::vector<std::string> take_warnings();

  /// In the names of all that this saver makes in the root.
  [[nodiscard]] const std::string& nonce() const;
  /// 0 before the first hold().
  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] const std::filesystem::path& root() const;

  /// Who takes a lease clears the root before it saves (commit.hpp): whether that is still to be done.
  [[nodiscard]] bool is_root_cleared() const;
  void set_root_cleared();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::root
