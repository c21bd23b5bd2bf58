// Marks of loads: `.cairn/loading-<step>.<nonce>` in a root says that a load has the step open, so that no pruning by
// another process removes it.
//
// A mark is a record like a lease's (lease_rules.hpp), and runs out like a lease: its load renews it six times a minute
// and removes it at the end. An observer counts a mark as over when its process is proven dead, or when the mark has
// not changed for its lease time by the observer's own clock. A pruning looks for marks after it has moved a checkpoint
// aside, and a load makes its mark before it opens the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "os/clock.hpp"
#include "root/lease_rules.hpp"

namespace cairn::root {

/// A mark, or none. Copies share one mark, which ends with the last of them.
class LoadMark {
 public:
  LoadMark() = default;
  /// Rank-local, on one rank of a load. Makes the mark if `checkpoint` is the name of a step in a root into which a run
  /// saved, and if the root can be written; otherwise, or if anything fails, makes none. Waits as wait_for_name().
  explicit LoadMark(const std::filesystem::path& checkpoint) noexcept;

  [[nodiscard]] bool is_made() const { return impl_ != nullptr; }

 private:
  class Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Watches the marks of a root, between one look and the next.
class LoadWatch {
 public:
  explicit LoadWatch(os::Clock& clock = os::Clock::of_system()) : clock_(&clock) {}

  struct Load {
    std::string words;         ///< who loads, on one line
    bool may_be_over = false;  ///< it has not been seen alive yet
  };
  /// Rank-local: the loads of each step that may be alive. Removes the marks of those that have ended. Throws for an
  /// error of the file system: then nothing is known, and nothing may be removed.
  std::map<std::uint64_t, Load> look(const std::filesystem::path& root);

 private:
  os::Clock* clock_;
  std::map<std::string, LeaseWatch> marks_;  ///< by name
};

}  // namespace cairn::root
