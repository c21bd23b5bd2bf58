#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>

namespace cairn::base {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>("cairn", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("cairn: %l: %v");
    const char* level = std::getenv("CAIRN_LOG");
    created->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::warn);
    return created;
  }();
  return *instance;
}

}  // namespace

void set_log_rank(int rank, int size) {
  if (size > 1) logger().set_pattern("cairn[" + std::to_string(rank) + "]: %l: %v");
  if (rank != 0 && std::getenv("CAIRN_LOG_ALL_RANKS") == nullptr) logger().set_level(spdlog::level::err);
}

void log_debug(const std::string& line) { logger().debug(line); }
void log_warning(const std::string& line) { logger().warn(line); }

void warn_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.insert(line).second) logger().warn(line);
}

}  // namespace cairn::base
