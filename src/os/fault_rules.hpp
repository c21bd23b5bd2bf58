// The language of CAIRN_FAULT (fault.hpp) as values: parsed, and matched against operations.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::os::internal {

enum class FaultAction { kFail, kShort, kLie, kKill, kStop, kPause };

struct FaultRule {
  std::string operation;
  std::optional<int> rank;
  std::string path_part;
  std::uint64_t after = 0;
  std::optional<std::uint64_t> times;  ///< none: always
  FaultAction action = FaultAction::kFail;
  int error = EIO;
  std::uint64_t short_bytes = 0;
  std::string pause_path;

  std::uint64_t seen = 0;
  std::uint64_t fired = 0;

  [[nodiscard]] bool matches(std::string_view name, int at_rank, std::string_view path) const;
  /// Counts a matching operation; true when the rule is due.
  bool is_due();
};

/// Throws Error(kUsage) naming the rule that it cannot read.
std::vector<FaultRule> parse_fault_rules(std::string_view text);

}  // namespace cairn::os::internal
