// Calls of one process, such as `cairn prune`, as lines of the root's log (root/run_log.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cairn/error.hpp"
#include "format/run_log.hpp"
#include "root/lease.hpp"

namespace cairn::life {

/// The line of a call that runs. Rank-local.
class CallLine {
 public:
  CallLine(std::filesystem::path root, const char* what, std::optional<std::uint64_t> step);

  /// The call did not do all: the first reason.
  void fail(const std::string& problem);
  void fail(const Error& error);
  /// Completes the line with the time since the construction. Never throws. `lease`: of the root, if it is held.
  void append(root::Lease* lease = nullptr) noexcept;

  format::LogCall call;  ///< good, unless fail() is called

 private:
  std::filesystem::path root_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// work(line), which appends the line when all is done. If it throws an Error, the line says so instead.
template <class Work>
auto logged(const std::filesystem::path& root, const char* what, std::optional<std::uint64_t> step, Work work) {
  CallLine line(root, what, step);
  try {
    return work(line);
  } catch (const Error& error) {
    line.fail(error);
    line.append();
    throw;
  }
}

}  // namespace cairn::life
