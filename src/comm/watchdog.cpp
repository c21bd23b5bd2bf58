#include "comm/watchdog.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"

namespace cairn::comm {
namespace {

/// MPI_Abort may itself wait for a lock that the stuck thread holds.
constexpr unsigned kAbortGraceSeconds = 10;

}  // namespace

Watchdog::Watchdog(double seconds, std::function<std::string()> describe)
    : seconds_(seconds), describe_(std::move(describe)) {
  if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::progress(std::string_view phase, const std::filesystem::path& file) {
  if (!thread_.joinable()) return;
  const std::lock_guard lock(mutex_);
  silent_s_ = 0;
  phase_ = phase;
  file_ = file.native();
}

void Watchdog::watch() {
  using Clock = std::chrono::steady_clock;
  const double tick_s = std::min(1.0, seconds_ / 10);
  const auto tick =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(tick_s));
  std::unique_lock lock(mutex_);
  auto last = Clock::now();
  while (!done_) {
    // A system-clock wait: GCC 12's thread sanitizer does not know the other kind. Time is measured by the steady clock.
    wake_.wait_until(lock, std::chrono::system_clock::now() + tick);
    const auto now = Clock::now();
    // A much longer tick means that this process was stopped, and so was its work.
    silent_s_ += std::min(std::chrono::duration<double>(now - last).count(), 2 * tick_s);
    last = now;
    if (done_ || silent_s_ < seconds_) continue;
    const std::string file = file_.empty() ? "" : fmt::format(", file '{}'", base::printable(file_));
    const std::string line = fmt::format(
        "cairn: error: no progress for {:g} s in phase '{}'{} on {}: the job is ended; look for a stopped rank "
        "or storage that does not answer, or raise CAIRN_WATCHDOG_S\n",
        seconds_, base::printable(phase_), file, describe_());
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    std::signal(SIGALRM, SIG_DFL);
    ::alarm(kAbortGraceSeconds);
    abort_job(kWatchdogExitCode);
  }
}

double Watchdog::seconds_from_environment(double otherwise) {
  const char* text = std::getenv("CAIRN_WATCHDOG_S");
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end == '\0' && std::isfinite(seconds) && seconds >= 0) return seconds;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("CAIRN_WATCHDOG_S is '{}'; write a number of seconds, or 0 for no watchdog", base::printable(text)));
}

}  // namespace cairn::comm
