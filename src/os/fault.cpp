// Fault hooks: parses CAIRN_FAULT and applies its rules to operations.
#include "os/fault.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

// The rules of CAIRN_FAULT (fault.hpp) as values.

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
  bool is_done = false;  ///< for kFail: fail after doing the operation

  std::uint64_t seen = 0;
  std::uint64_t fired = 0;

  [[nodiscard]] bool matches(std::string_view name, int at_rank, std::string_view path) const {
    if (name != operation || (rank && *rank != at_rank)) return false;
    return path_part.empty() || path.find(path_part) != std::string_view::npos;
  }
  /// Counts a matching operation; true when the rule is due.
  bool is_due() {
    if (seen++ < after) return false;
    return !times || fired < *times;
  }
};

constexpr std::array<std::string_view, 16> kFileOperations = {
    "open",   "write",    "read",  "fsync", "close", "rename", "exchange", "mkdir",
    "unlink", "truncate", "flock", "link",  "clone", "chown",  "chmod",    "stat"};

constexpr std::array<std::pair<std::string_view, int>, 11> kErrors = {{{"EIO", EIO},
                                                                       {"ENOSPC", ENOSPC},
                                                                       {"EDQUOT", EDQUOT},
                                                                       {"ENOENT", ENOENT},
                                                                       {"EACCES", EACCES},
                                                                       {"EINTR", EINTR},
                                                                       {"EINVAL", EINVAL},
                                                                       {"ENOLCK", ENOLCK},
                                                                       {"ENOTSUP", ENOTSUP},
                                                                       {"EMFILE", EMFILE},
                                                                       {"ESTALE", ESTALE}}};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

class RuleParser {
 public:
  explicit RuleParser(std::string_view text) : text_(text) {}

  FaultRule parse() {
    const auto fields = split(text_, ':');
    set_operation(fields.front());
    for (std::size_t at = 1; at < fields.size(); ++at) set_field(fields[at]);
    if (rule_.action == FaultAction::kShort && rule_.operation != "write" && rule_.operation != "read") {
      fail("has short for an operation that is not write or read");
    }
    if (rule_.action == FaultAction::kLie && rule_.operation != "write") {
      fail("has lie for an operation that is not write");
    }
    if (rule_.is_done && (!has_action_ || rule_.action != FaultAction::kFail)) fail("has done without an errno");
    const bool is_retried = rule_.action == FaultAction::kFail && rule_.error == EINTR;
    if (!rule_.times && (is_retried || rule_.action == FaultAction::kShort)) rule_.times = 1;
    return rule_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kUsage,
                fmt::format("fault rule '{}' {}; src/os/fault.hpp has the language", base::printable(text_), why));
  }

  void set_operation(std::string_view name) {
    const bool is_file_operation =
        std::find(kFileOperations.begin(), kFileOperations.end(), name) != kFileOperations.end();
    const bool is_step = name.find('.') != std::string_view::npos;
    if (!is_file_operation && !is_step) fail("has an unknown operation");
    rule_.operation = name;
  }

  void set_field(std::string_view field) {
    const std::size_t equals = field.find('=');
    const std::string_view key = field.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : field.substr(equals + 1);
    if (key == "rank") {
      rule_.rank = static_cast<int>(number(key, value, std::numeric_limits<int>::max()));
    } else if (key == "after") {
      rule_.after = number(key, value);
    } else if (key == "times") {
      rule_.times = number(key, value);
    } else if (key == "path") {
      if (value.empty()) fail("has an empty path");
      rule_.path_part = value;
    } else if (key == "errno") {
      set_error(value);
    } else if (key == "short") {
      set_action(FaultAction::kShort);
      rule_.short_bytes = number(key, value);
      if (rule_.short_bytes == 0) fail("has short=0, which is the end of a file and no short transfer");
    } else if ((key == "kill" || key == "stop") && (equals == std::string_view::npos || value == "1")) {
      set_action(key == "kill" ? FaultAction::kKill : FaultAction::kStop);
    } else if (key == "done" && equals == std::string_view::npos) {
      rule_.is_done = true;
    } else if (key == "lie" && (equals == std::string_view::npos || value == "1")) {
      set_action(FaultAction::kLie);
    } else if (key == "pause") {
      if (value.empty()) fail("has an empty pause");
      set_action(FaultAction::kPause);
      rule_.pause_path = value;
    } else {
      fail(fmt::format("has an unknown key '{}'", base::printable(field)));
    }
  }

  void set_action(FaultAction action) {
    if (has_action_) fail("has more than one of errno, short, lie, kill, stop and pause");
    has_action_ = true;
    rule_.action = action;
  }

  void set_error(std::string_view name) {
    set_action(FaultAction::kFail);
    const auto* const found =
        std::find_if(kErrors.begin(), kErrors.end(), [&](const auto& known) { return known.first == name; });
    if (found != kErrors.end()) {
      rule_.error = found->second;
      return;
    }
    constexpr std::uint64_t kLargestErrno = 4095;
    if (name.empty() || name.find_first_not_of("0123456789") != std::string_view::npos) {
      fail(
          "has an unknown errno; EIO, ENOSPC, EDQUOT, ENOENT, EACCES, EINTR, EINVAL, ENOLCK, ENOTSUP, EMFILE, "
          "ESTALE and numbers are known");
    }
    rule_.error = static_cast<int>(number("errno", name, kLargestErrno));
    if (rule_.error == 0) fail("has errno=0, which is no failure");
  }

  [[nodiscard]] std::uint64_t number(std::string_view key, std::string_view text,
                                     std::uint64_t limit = std::numeric_limits<std::uint64_t>::max()) const {
    if (const auto value = base::number_in<std::uint64_t>(text); value && *value <= limit) return *value;
    fail(fmt::format("has no number in '{}'", key));
  }

  std::string_view text_;
  FaultRule rule_;
  bool has_action_ = false;
};

/// Throws Error(kUsage) with the first invalid rule.
std::vector<FaultRule> parse_fault_rules(std::string_view text) {
  std::vector<FaultRule> rules;
  for (const std::string_view rule : split(text, ';')) {
    if (!rule.empty()) rules.push_back(RuleParser(rule).parse());
  }
  return rules;
}

enum class State { kUnread, kNone, kSome };

// Relaxed is enough: new rules need not take effect at once on other threads, and the mutex protects the rules.
std::atomic<State> state{State::kUnread};
std::mutex mutex;

std::vector<FaultRule>& rules() {
  static std::vector<FaultRule> all;
  return all;
}

constexpr int kUnset = -1;
std::atomic<int> process_rank{0};
thread_local int thread_rank = kUnset;

/// Requires the mutex.
void replace_rules(std::string_view text) {
  rules() = parse_fault_rules(text);
  state.store(rules().empty() ? State::kNone : State::kSome, std::memory_order_relaxed);
}

/// The rule that applies to the operation, or null. Requires the mutex.
FaultRule* find_due_rule(std::string_view operation, std::string_view path) {
  FaultRule* due = nullptr;
  for (FaultRule& rule : rules()) {
    if (!rule.matches(operation, fault_rank(), path)) continue;
    if (rule.is_due() && due == nullptr) due = &rule;
  }
  if (due != nullptr) ++due->fired;
  return due;
}

/// Avoids this layer's calls, since the rules would apply to them again.
void pause_at(const std::string& path) {
  std::ofstream(path + ".reached").close();
  constexpr std::chrono::milliseconds kPoll(2);
  while (::access(path.c_str(), F_OK) != 0) std::this_thread::sleep_for(kPoll);
}

}  // namespace

void set_fault_rank(int rank) {
  thread_rank = rank;
  process_rank.store(rank, std::memory_order_relaxed);
}

int fault_rank() { return thread_rank != kUnset ? thread_rank : process_rank.load(std::memory_order_relaxed); }

void set_faults(std::string_view text) {
  const std::lock_guard lock(mutex);
  replace_rules(text);
}

std::uint64_t fault_hits() {
  const std::lock_guard lock(mutex);
  std::uint64_t hits = 0;
  for (const FaultRule& rule : rules()) hits += rule.fired;
  return hits;
}

std::optional<Fault> check_fault(std::string_view operation, const std::filesystem::path& path) {
  if (state.load(std::memory_order_relaxed) == State::kNone) return std::nullopt;
  FaultRule rule;
  {
    const std::lock_guard lock(mutex);
    if (state.load(std::memory_order_relaxed) == State::kUnread) {
      const char* text = std::getenv("CAIRN_FAULT");
      replace_rules(text != nullptr ? text : "");
    }
    const FaultRule* due = find_due_rule(operation, path.native());
    if (due == nullptr) return std::nullopt;
    rule = *due;
  }
  switch (rule.action) {
    case FaultAction::kFail: return Fault{rule.error, std::nullopt, false, rule.is_done};
    case FaultAction::kShort: return Fault{0, rule.short_bytes, false, false};
    case FaultAction::kLie: return Fault{0, std::nullopt, true, false};
    case FaultAction::kKill: std::raise(SIGKILL); break;
    case FaultAction::kStop: std::raise(SIGSTOP); break;
    case FaultAction::kPause: pause_at(rule.pause_path); break;
  }
  return std::nullopt;
}

void fault_memory(std::string_view place) {
  if (check_fault(place, {})) throw std::bad_alloc();
}

void fault_phase(std::string_view name) {
  if (state.load(std::memory_order_relaxed) == State::kNone) return;
  static_cast<void>(check_fault("call.phase", name));
}

void fault_point(std::string_view step, const std::filesystem::path& path) {
  const int error = fault_error(step, path);
  if (error != 0 && error != EINTR) throw_system_error(fmt::format("step {} on", step), path, error);
}

}  // namespace cairn::os
