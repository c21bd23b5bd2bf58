#include "comm/watchdog.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <system_error>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"
#include "os/fault.hpp"
#include "os/process.hpp"

namespace cairn::comm {
namespace {

/// Time until SIGALRM ends the process: MPI_Abort, or the program's log sink, may wait for a lock of the stuck thread.
constexpr unsigned kAbortGraceSeconds = 10;
/// A waiting rank gives up at the limit; if it still waits at this multiple of the limit, it is stuck inside MPI.
constexpr double kStuckWait = 1.5;
/// Room for names, reserved in advance: naming a step must not fail.
constexpr std::size_t kNameBytes = 200;
constexpr std::size_t kPathBytes = 1000;

double within_clocks(double limit_s) { return std::isfinite(limit_s) ? std::min(limit_s, os::kLongestWaitS) : limit_s; }

}  // namespace

void carry_out(const Waiting& waiting, const std::string& message) {
  if (waiting.then == OnSilence::kCallback && waiting.callback) waiting.callback(message);
  if (waiting.then != OnSilence::kEndProcess) return;
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(kAbortGraceSeconds);
  base::log_error(message);
  abort_job(base::kExitSilent);
}

Watchdog::Watchdog(Waiting waiting, std::string rank_text, os::Clock& clock)
    : waiting_(std::move(waiting)), rank_text_(std::move(rank_text)), clock_(clock) {
  if (waiting_.limit_s <= 0) return;
  phase_.reserve(kNameBytes);
  step_.reserve(kNameBytes);
  file_.reserve(kPathBytes);
  if (os::check_fault("thread.watchdog", {})) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "no thread to watch with");
  }
  thread_ = os::start_thread([this] { watch(); });
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

void Watchdog::begin(int& count) {
  if (!thread_.joinable()) return;
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    wakes = calls_ + waits_ == 0;
    ++count;
    if (wakes) silent_s_ = 0;
  }
  if (wakes) wake_.notify_all();
}

void Watchdog::end(int& count) {
  if (!thread_.joinable()) return;
  const std::lock_guard lock(mutex_);
  --count;
}

void Watchdog::begin_call() {
  begin(calls_);
  progress();
}

void Watchdog::progress(std::string_view phase, const std::filesystem::path& file) {
  if (!thread_.joinable()) return;
  progress();
  const std::lock_guard lock(mutex_);
  if (phase_ != phase) step_.clear();
  phase_.assign(phase.substr(0, kNameBytes));
  file_.assign(file.native(), 0, kPathBytes);
}

void Watchdog::step(std::string_view name) {
  if (!thread_.joinable()) return;
  const std::lock_guard lock(mutex_);
  step_.assign(name.substr(0, kNameBytes));
}

std::string Watchdog::where() {
  const std::lock_guard lock(mutex_);
  return where_locked();
}

std::string Watchdog::where_locked() const {
  const std::string step = step_.empty() ? "" : fmt::format(", step '{}'", base::printable(step_));
  const std::string file = file_.empty() ? "" : fmt::format(", file '{}'", base::printable(file_));
  return fmt::format("in phase '{}'{}{}", base::printable(phase_), step, file);
}

void Watchdog::watch() {
  const double tick_s = std::min(1.0, waiting_.limit_s / 10);
  const auto tick = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(tick_s));
  std::unique_lock lock(mutex_);
  auto last = clock_.now();
  while (!done_) {
    if (calls_ == 0 && waits_ == 0) {
      wake_.wait(lock, [&] { return done_ || calls_ + waits_ != 0; });
      last = clock_.now();
      continue;
    }
    clock_.wait_for(wake_, lock, tick, [&] { return done_; });
    if (calls_ == 0 && waits_ == 0) continue;  // the call or the wait is over
    const auto now = clock_.now();
    // A much longer tick means that this process was stopped in between.
    const double more = std::min(std::chrono::duration<double>(now - last).count(), 2 * tick_s);
    last = now;
    const double silent = moved_.exchange(false, std::memory_order_relaxed) ? 0 : silent_s_.load() + more;
    silent_s_ = silent;
    if (done_ || silent < waiting_.limit_s * (waits_ != 0 ? kStuckWait : 1)) continue;
    silent_s_ = 0;
    const std::string message = fmt::format(
        "no progress for {:g} s {} on {}, inside a call that cannot be left; look for a stopped rank or storage that "
        "does not answer, or raise the limit (Options::waiting, CAIRN_WATCHDOG_S)",
        waiting_.limit_s, where_locked(), rank_text_);
    lock.unlock();
    if (waiting_.then != OnSilence::kEndProcess) base::log_error(message);
    carry_out(waiting_, message);
    lock.lock();
  }
}

double Watchdog::seconds_from_environment(double otherwise) {
  const char* text = std::getenv("CAIRN_WATCHDOG_S");
  if (text == nullptr || *text == '\0') return within_clocks(otherwise);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end == '\0' && std::isfinite(seconds) && seconds >= 0) return within_clocks(seconds);
  throw Error(
      ErrorKind::kUsage,
      fmt::format("CAIRN_WATCHDOG_S is '{}'; write a number of seconds, or 0 for no watchdog", base::printable(text)));
}

}  // namespace cairn::comm
