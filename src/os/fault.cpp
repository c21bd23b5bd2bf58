#include "os/fault.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "cairn/error.hpp"
#include "os/fault_rules.hpp"
#include "os/system_error.hpp"

namespace cairn::os {
namespace {

using internal::FaultAction;
using internal::FaultRule;

enum class State { kUnread, kNone, kSome };

// Relaxed is enough: who sets rules while others work cannot expect them at once, and the rules have the mutex.
std::atomic<State> state{State::kUnread};
std::mutex mutex;

std::vector<FaultRule>& rules() {
  static std::vector<FaultRule> all;
  return all;
}

constexpr int kUnset = -1;
std::atomic<int> process_rank{0};
thread_local int thread_rank = kUnset;

/// With the mutex held.
void replace_rules(std::string_view text) {
  rules() = internal::parse_fault_rules(text);
  state.store(rules().empty() ? State::kNone : State::kSome, std::memory_order_relaxed);
}

/// With the mutex held: the rule that applies to the operation.
FaultRule* find_due_rule(std::string_view operation, std::string_view path) {
  FaultRule* due = nullptr;
  for (FaultRule& rule : rules()) {
    if (!rule.matches(operation, fault_rank(), path)) continue;
    if (rule.is_due() && due == nullptr) due = &rule;
  }
  if (due != nullptr) ++due->fired;
  return due;
}

/// Not by the calls of this layer, which would meet the rules again.
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
    case FaultAction::kFail: return Fault{rule.error, std::nullopt, false};
    case FaultAction::kShort: return Fault{0, rule.short_bytes, false};
    case FaultAction::kLie: return Fault{0, std::nullopt, true};
    case FaultAction::kKill: std::raise(SIGKILL); break;
    case FaultAction::kStop: std::raise(SIGSTOP); break;
    case FaultAction::kPause: pause_at(rule.pause_path); break;
  }
  return std::nullopt;
}

void fault_memory(std::string_view place) {
  if (check_fault(place, {})) throw std::bad_alloc();
}

void fault_point(std::string_view step, const std::filesystem::path& path) {
  const int error = internal::fault_error(step, path);
  if (error != 0 && error != EINTR) internal::throw_system_error(fmt::format("step {} on", step), path, error);
}

}  // namespace cairn::os
