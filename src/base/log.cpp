#include "base/log.hpp"
#include "base/log_words.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "cairn/log.hpp"

namespace cairn {
namespace base {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;
constexpr const char* kPattern = "cairn: %l: %v";

std::atomic<int> known_rank = -1;
std::atomic<std::string (*)(std::string_view)> words_of_program = nullptr;

/// The level in CAIRN_LOG, "warn" if unset; nothing if the word is not a level, which spdlog reads as "off".
std::optional<spdlog::level::level_enum> level_asked_for() {
  const char* text = std::getenv("CAIRN_LOG");
  if (text == nullptr || *text == '\0') return spdlog::level::warn;
  const auto level = spdlog::level::from_str(text);
  if (level == spdlog::level::off && std::string_view(text) != "off") return std::nullopt;
  return level;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>("cairn", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern(kPattern);
    created->set_level(level_asked_for().value_or(spdlog::level::warn));
    return created;
  }();
  return *instance;
}

/// The program's sink. The sink is called without the lock: while it waits for another lock (such as Python's), it must
/// not block a thread that replaces the sink.
struct SinkPlace {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
};

SinkPlace& sink_place() {
  static auto* const place = new SinkPlace;  // never destroyed, since threads may log while the process ends
  return *place;
}

bool give_to_sink(LogLevel level, const std::string& line) noexcept {
  try {
    std::shared_ptr<const LogSink> sink;
    {
      const std::lock_guard lock(sink_place().mutex);
      sink = sink_place().sink;
    }
    if (!sink) return false;
    (*sink)(level, line);
    return true;
  } catch (...) {
    return false;
  }
}

void log(LogLevel level, const std::string& text) {
  const auto spdlog_level = level == LogLevel::kDebug     ? spdlog::level::debug
                            : level == LogLevel::kWarning ? spdlog::level::warn
                                                          : spdlog::level::err;
  if (!logger().should_log(spdlog_level)) return;
  const auto words = words_of_program.load();
  const std::string line = one_line(words == nullptr ? text : words(text), kLongestLine);
  if (!give_to_sink(level, line)) logger().log(spdlog_level, line);
}

}  // namespace

void set_log_rank(int rank, int size) {
  known_rank = rank;
  const bool all_speak = std::getenv("CAIRN_LOG_ALL_RANKS") != nullptr;
  const bool names_rank = size > 1 && (rank != 0 || all_speak);
  logger().set_pattern(names_rank ? "cairn[" + std::to_string(rank) + "]: %l: %v" : std::string(kPattern));
  static std::atomic<bool> speaks = false;
  if (rank == 0 || all_speak) speaks = true;
  const auto level = level_asked_for();
  logger().set_level(speaks ? level.value_or(spdlog::level::warn) : spdlog::level::err);
  if (level) return;
  warn_once("CAIRN_LOG is '" + printable(std::getenv("CAIRN_LOG")) +
            "', which is no level, and is taken for 'warning'; there are 'debug', 'warning', 'error' and 'off'");
}

void set_log_words(std::string (*words)(std::string_view line)) { words_of_program = words; }

int log_rank() noexcept { return known_rank; }

void log_debug(const std::string& line) { log(LogLevel::kDebug, line); }
void log_warning(const std::string& line) { log(LogLevel::kWarning, line); }

void log_error(const std::string& line) noexcept {
  try {
    log(LogLevel::kError, line);
  } catch (...) {  // there is no way left to report this
  }
}

void warn_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  {
    const std::lock_guard lock(mutex);
    if (!seen.insert(line).second) return;
  }
  log_warning(line);
}

}  // namespace base

void set_log_sink(LogSink sink) {
  auto held = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(base::sink_place().mutex);
  base::sink_place().sink.swap(held);  // the old sink is destroyed after the lock is released
}

}  // namespace cairn
