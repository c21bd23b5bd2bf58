#include "life/time_limit.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"

namespace cairn::life {
namespace {

constexpr double kAskSeconds = 10;

/// The output of `scontrol show job ID`; nothing, with a reason in `why`, if it fails or takes too long.
std::optional<std::string> ask_scontrol(const std::string& job, std::string& why) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    why = std::strerror(errno);
    return std::nullopt;
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = "scontrol", show = "show", what = "job", number = job;
  std::array<char*, 5> arguments = {name.data(), show.data(), what.data(), number.data(), nullptr};
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, "scontrol", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::optional<std::string> text = std::string();
  if (failed != 0) {
    why = std::strerror(failed);
    ::close(ends[0]);
    return std::nullopt;
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(kAskSeconds);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd ready{ends[0], POLLIN, 0};
    const int polled = left.count() > 0 ? ::poll(&ready, 1, static_cast<int>(left.count())) : 0;
    if (polled < 0 && errno == EINTR) continue;
    std::array<char, 4096> part{};
    const ssize_t got = polled > 0 ? ::read(ends[0], part.data(), part.size()) : -1;
    if (got < 0) {
      why = fmt::format("no answer in {} s", kAskSeconds);
      ::kill(child, SIGKILL);
      text.reset();
    }
    if (got <= 0) break;
    text->append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (text && status != 0) {
    why = "it fails";
    text.reset();
  }
  return text;
}

std::optional<double> seconds_in(const char* text) {
  double seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, seconds);
  if (error != std::errc() || at != end || !(seconds > 0)) return std::nullopt;
  return seconds;
}

}  // namespace

std::optional<double> end_time_in(std::string_view scontrol) {
  constexpr std::string_view kKey = "EndTime=";
  std::size_t at = scontrol.find(kKey);
  while (at != std::string_view::npos && at != 0 && std::isspace(static_cast<unsigned char>(scontrol[at - 1])) == 0) {
    at = scontrol.find(kKey, at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  const std::string text(scontrol.substr(at + kKey.size(), std::strlen("2026-01-31T10:20:30")));
  std::tm local{};
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &local);
  if (end == nullptr || *end != '\0') return std::nullopt;  // "Unknown", "NONE"
  local.tm_isdst = -1;
  const std::time_t seconds = std::mktime(&local);
  if (seconds <= 0) return std::nullopt;
  return static_cast<double>(seconds);
}

std::optional<double> time_limit_of_job() {
  if (const char* const end = std::getenv("SLURM_JOB_END_TIME"); end != nullptr) {
    if (const auto seconds = seconds_in(end)) return seconds;
    base::log_warning(fmt::format("SLURM_JOB_END_TIME is '{}', not seconds since 1970", base::printable(end)));
  }
  const char* const job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr || *job == '\0') return std::nullopt;
  std::string why;
  const auto answer = ask_scontrol(job, why);
  if (!answer) {
    base::log_warning(fmt::format("the time limit of job {} is unknown (scontrol: {}): no save is made before it",
                                  base::printable(job), why));
    return std::nullopt;
  }
  return end_time_in(*answer);
}

}  // namespace cairn::life
