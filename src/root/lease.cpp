// Locks: io_mutex_ is held while the lease is watched, taken, renewed or released, which may hang with the file system;
// state_mutex_ only briefly, and may be taken while io_mutex_ is held.
#include "root/lease.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "cairn/error.hpp"
#include "os/condition.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kRenewalsPerLease = 6;
constexpr milliseconds kNoticeInterval(10'000);
constexpr int kAttemptsAtEnd = 25;
constexpr milliseconds kBetweenAttempts(20);

double seconds_of(LeaseTime time) { return std::chrono::duration<double>(time).count(); }

LeaseTime checked_lease(double seconds) {
  if (seconds > 0 && seconds * 1000 <= static_cast<double>(kMaxLeaseMs)) {
    return std::chrono::duration_cast<LeaseTime>(std::chrono::duration<double>(seconds));
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("a lease time of {} s is not above 0 and at most {} s", seconds, kMaxLeaseMs / 1000));
}

}  // namespace

class Lease::Impl {
 public:
  Impl(fs::path root, Setup setup)
      : root_(std::move(root)),
        highest_saved_epoch_(std::move(setup.highest_saved_epoch)),
        lease_(checked_lease(setup.seconds)),
        request_(own_request(setup.wait_seconds)),
        clock_(*setup.clock),
        nonce_(os::random_nonce()),
        folder_(root_, request_.process, nonce_),
        watch_(lease_) {
    try {
      observe();
      if (watch_.state(observer_now()) != LeaseWatch::State::kFree) start_thread();
    } catch (const Error& error) {
      base::log_debug(error.what());  // hold() looks again, and reports a failure
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(state_mutex_);
      is_ending_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    const std::lock_guard io(io_mutex_);
    release();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// A child of fork() has no renewing thread and must not release its parent's lease.
  [[nodiscard]] bool is_of_this_process() const { return os::this_process().pid == request_.process.pid; }

  void hold() {
    if (begins_life_ && is_lost()) forget_lost();
    throw_if_lost();
    if (is_held()) {
      if (holder_now() < held_until() && !begins_life_) {
        const std::lock_guard io(io_mutex_);
        try {
          renew();
        } catch (const Error& error) {
          throw error.with_message(fmt::format("the lease of '{}' cannot be renewed: {}", shown(), error.what()));
        }
        return;
      }
      take_anew();
    } else {
      take();
    }
    begins_life_ = false;
    start_thread();
  }

  void begin_life() noexcept { begins_life_ = true; }

  void look() {
    throw_if_lost();
    os::fault_point("lease.look", folder_.path());
    check_for_another();
    const LeaseTime late = holder_now() - held_until();
    if (late < LeaseTime(0)) return;
    throw Error(ErrorKind::kState, fmt::format("the lease of '{}' ran out {:.1f} s ago, before the save was complete: "
                                               "it was not renewed for {:.1f} s ({}); save again",
                                               shown(), seconds_of(late), seconds_of(late + lease_),
                                               last_warning().empty() ? "the process stood still" : last_warning()));
  }

  std::optional<std::string> lost() noexcept {
    try {
      if (is_held()) check_for_another();
      const std::lock_guard lock(state_mutex_);
      return lost_;
    } catch (const Error&) {
      const std::lock_guard lock(state_mutex_);
      return lost_;
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  std::vector<std::string> take_warnings() {
    const std::lock_guard lock(state_mutex_);
    return std::exchange(warnings_, {});
  }

  [[nodiscard]] const std::string& nonce() const { return nonce_; }
  [[nodiscard]] const fs::path& root() const { return root_; }
  [[nodiscard]] std::uint64_t epoch() const {
    const std::lock_guard lock(state_mutex_);
    return epoch_;
  }
  bool is_cleared = false;

 private:
  /// While the machine sleeps, the holder's clock continues and the observer's stops: both err on the safe side.
  [[nodiscard]] LeaseTime holder_now() const { return clock_.now_with_sleep(); }
  [[nodiscard]] LeaseTime observer_now() const { return clock_.now(); }

  [[nodiscard]] std::string shown() const { return os::shown(root_); }
  [[nodiscard]] bool is_held() const {
    const std::lock_guard lock(state_mutex_);
    return is_held_;
  }
  [[nodiscard]] bool is_lost() const {
    const std::lock_guard lock(state_mutex_);
    return lost_.has_value();
  }
  [[nodiscard]] LeaseTime held_until() const {
    const std::lock_guard lock(state_mutex_);
    return held_until_;
  }
  [[nodiscard]] std::string last_warning() const {
    const std::lock_guard lock(state_mutex_);
    return warnings_.empty() ? "" : warnings_.back();
  }
  void throw_if_lost() const {
    const std::lock_guard lock(state_mutex_);
    if (lost_) throw Error(ErrorKind::kState, *lost_);
  }

  /// Requires io_mutex_, or that the thread has not started.
  void observe() { watch_.see(folder_.see(), observer_now()); }

  /// A free lease need not be watched, because hold() looks anyway.
  void observe_again() {
    if (watch_.state(observer_now()) != LeaseWatch::State::kFree) observe();
  }

  void take() {
    const LeaseTime asked = observer_now();
    LeaseTime noticed = asked;
    for (;;) {
      std::unique_lock io(io_mutex_);
      observe();
      const LeaseTime now = observer_now();
      switch (answer(watch_, request_, now - asked, now)) {
        case LeaseAnswer::kTake:
          if (create()) return;
          continue;  // another saver was faster
        case LeaseAnswer::kRefuse: throw Error(ErrorKind::kState, refusal(now));
        case LeaseAnswer::kLookAgain: break;
      }
      if (now - noticed >= kNoticeInterval) {
        base::log_warning(fmt::format("waiting for the lease of '{}' for {:.0f} s: {}", shown(),
                                      seconds_of(now - asked), state_of_holder(now)));
        noticed = now;
      }
      const LeaseTime pause = std::clamp<LeaseTime>(watch_.lease_time() / (2 * kRenewalsPerLease), milliseconds(10),
                                                    std::chrono::seconds(5));
      io.unlock();
      clock_.sleep_for(pause);
    }
  }

  /// Takes the next epoch, after begin_life() or if the lease ran out and no other saver took it. Two savers cannot
  /// create the same epoch. The former epoch is held until the next one exists.
  void take_anew() {
    const std::lock_guard io(io_mutex_);
    do {
      check_for_another();
      watch_ = LeaseWatch(lease_);
      observe();
    } while (!create());
  }

  void forget_lost() {
    const std::lock_guard io(io_mutex_);
    drop();
    watch_ = LeaseWatch(lease_);
    const std::lock_guard lock(state_mutex_);
    lost_.reset();
  }

  [[nodiscard]] std::string state_of_holder(LeaseTime now) const {
    const std::string who =
        watch_.record() ? describe(watch_.record()->holder) : "a saver whose record is not readable";
    return fmt::format("{} has it, unchanged for {:.1f} of {:.0f} s", who, seconds_of(watch_.unchanged_for(now)),
                       seconds_of(watch_.lease_time()));
  }

  [[nodiscard]] std::string refusal(LeaseTime now) const {
    if (watch_.record() && is_same_process(watch_.record()->holder.process, request_.process)) {
      return fmt::format(
          "'{}' has another saver, in this process ({}): a Checkpointer holds its root from its first save to its end; "
          "save with that one, end it first, or save to another root",
          shown(), describe(watch_.record()->holder));
    }
    return fmt::format(
        "'{}' has another saver: {}; end it first, save to another root, or let this one wait for it "
        "(Options::lease.wait_seconds)",
        shown(), state_of_holder(now));
  }

  /// Requires io_mutex_. False if another saver was faster.
  bool create() {
    os::make_directory(folder_.path());
    remove_left_record();
    folder_.refresh();
    const std::uint64_t saved = highest_saved_epoch_ ? highest_saved_epoch_() : 0;
    const std::uint64_t epoch = std::max(folder_.highest_epoch(), saved) + 1;
    if (folder_.highest_epoch() != watch_.epoch()) return false;
    const fs::path path = folder_.path_of(epoch);
    os::fault_point("lease.take", path);
    const LeaseTime now = holder_now();
    auto file = os::create_exclusively(path);
    if (!file) return false;
    os::FileLock locked;
    LeaseRecord record;
    bool is_highest = false;
    try {
      os::fault_point("lease.taken", path);
      locked = file->try_lock();
      record = first_record(static_cast<bool>(locked));
      write(*file, record);
      is_highest = folder_.highest_epoch() == epoch;
    } catch (...) {  // removes the record, or the next saver would wait for a lease without a holder
      {
        const std::lock_guard lock(state_mutex_);
        left_record_ = path;
      }
      try {
        remove_left_record();
      } catch (const Error& error) {
        base::log_debug(error.what());  // tried again before the next use of the lease
      }
      throw;
    }
    if (!is_highest) {  // a faster saver took this epoch, others took later epochs, and this epoch's file was cleared
                        // as old
      os::remove_tree(path);
      return false;
    }
    lock_ = std::move(locked);
    file_ = std::move(*file);
    record_ = std::move(record);
    folder_.clear_old(epoch);
    const std::lock_guard lock(state_mutex_);
    is_held_ = true;
    is_cleared = false;
    epoch_ = epoch;
    held_until_ = now + lease_;
    warnings_.clear();
    return true;
  }

  /// A record that this saver could not remove must not be mistaken for another saver's.
  void remove_left_record() {
    std::optional<fs::path> left;
    {
      const std::lock_guard lock(state_mutex_);
      left = left_record_;
    }
    if (!left) return;
    os::remove_tree(*left);
    const std::lock_guard lock(state_mutex_);
    if (left_record_ == left) left_record_.reset();
  }

  [[nodiscard]] LeaseRecord first_record(bool is_locked) const {
    LeaseRecord record;
    record.holder = {request_.process, request_.job_id, request_.restarts, nonce_,
                     static_cast<std::uint64_t>(std::time(nullptr))};
    record.lease_ms = static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(lease_).count());
    record.is_locked = is_locked;
    return record;
  }

  static void write(os::File& file, LeaseRecord& record) {
    ++record.sequence;
    file.write_at(base::as_bytes(encode_lease(record)), 0);
    file.flush();
  }

  /// Requires io_mutex_.
  void write_record() { write(file_, record_); }

  /// Requires io_mutex_.
  void renew() {
    const LeaseTime now = holder_now();
    os::fault_point("lease.renew", file_.path());
    write_record();
    const std::lock_guard lock(state_mutex_);
    // A lease that has run out must be taken again: another saver may be about to take it.
    if (now < held_until_) held_until_ = now + lease_;
  }

  /// Throws kState if there is a higher epoch, or if this saver's epoch is gone or belongs to another saver. The loss
  /// is permanent until hold() is called after begin_life().
  void check_for_another() {
    remove_left_record();
    folder_.refresh();
    const std::uint64_t found = folder_.highest_epoch();
    const std::uint64_t own = epoch();
    // The root may have been removed or moved away, and a new root begun: then an equal number proves nothing.
    if (found == own && !folder_.is_of_another(own)) return;
    std::string text;
    if (found < own) {
      text = fmt::format("'{}' is gone: somebody removed the lease of '{}'", os::shown(folder_.path_of(own)), shown());
    } else {
      text = fmt::format("another saver has taken over '{}': {}", shown(), folder_.name_holder(found));
    }
    text += "; this one must not save there any more";
    const std::lock_guard lock(state_mutex_);
    if (!lost_) lost_ = std::move(text);
    throw Error(ErrorKind::kState, *lost_);
  }

  /// Requires io_mutex_. Stops holding the lease; the file stays.
  void drop() {
    lock_ = {};
    file_ = {};
    const std::lock_guard lock(state_mutex_);
    is_held_ = false;
  }

  /// Called when a signal ends the program: nothing is renamed after that. Keeps io_mutex_ locked, so that no thread
  /// writes the record again.
  void release_at_end() noexcept {
    for (int attempt = 0; attempt < kAttemptsAtEnd; ++attempt) {
      if (std::unique_lock io(io_mutex_, std::try_to_lock); io) {
        release();
        static_cast<void>(io.release());
        return;
      }
      std::this_thread::sleep_for(kBetweenAttempts);
    }
  }

  /// Requires io_mutex_.
  void release() noexcept {
    if (!is_held()) return;
    try {
      record_.is_released = true;
      write_record();
      file_.sync();  // so that the lease does not look held after a power failure
    } catch (const std::exception& error) {
      base::log_warning(fmt::format("the lease of '{}' could not be released: {}; the next saver waits {:.0f} s",
                                    shown(), error.what(), seconds_of(lease_)));
    }
  }

  void start_thread() {
    if (thread_.joinable()) return;
    thread_ = os::start_thread([this] { run(); });
  }

  void run() {
    std::unique_lock lock(state_mutex_);
    while (!is_ending_) {
      clock_.wait_for(wake_, lock, lease_ / kRenewalsPerLease, [&] { return is_ending_; });
      if (is_ending_) return;
      lock.unlock();
      tick();
      lock.lock();
    }
  }

  void tick() noexcept {
    try {
      const std::lock_guard io(io_mutex_);
      if (is_held() && !is_lost()) {
        renew();
      } else if (!is_held()) {
        observe_again();
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(state_mutex_);
      if (is_held_) warnings_.push_back(fmt::format("a renewal of the lease failed: {}", error.what()));
    }
  }

  const fs::path root_;
  const std::function<std::uint64_t()> highest_saved_epoch_;
  const LeaseTime lease_;
  const LeaseRequest request_;
  os::Clock& clock_;
  const std::string nonce_;
  const LeaseFolder folder_;

  const LiveSaver live_{nonce_};
  bool begins_life_ = false;

  std::mutex io_mutex_;
  LeaseWatch watch_;
  os::File file_;
  os::FileLock lock_;
  LeaseRecord record_;

  mutable std::mutex state_mutex_;
  os::Condition wake_;
  bool is_ending_ = false;
  bool is_held_ = false;
  std::uint64_t epoch_ = 0;
  LeaseTime held_until_{0};
  std::optional<std::string> lost_;
  std::optional<fs::path> left_record_;
  std::vector<std::string> warnings_;
  std::thread thread_;

  const os::AtEnd at_end_{[this] { release_at_end(); }};
};

Lease::Lease(fs::path root, Setup setup) : impl_(std::make_unique<Impl>(std::move(root), std::move(setup))) {}

Lease::~Lease() {
  if (!impl_->is_of_this_process()) static_cast<void>(impl_.release());
}

void Lease::hold() { impl_->hold(); }
void Lease::begin_life() noexcept { impl_->begin_life(); }
void Lease::look() { impl_->look(); }
std::optional<std::string> Lease::lost() noexcept { return impl_->lost(); }
std::vector<std::string> Lease::take_warnings() { return impl_->take_warnings(); }
const std::string& Lease::nonce() const { return impl_->nonce(); }
std::uint64_t Lease::epoch() const { return impl_->epoch(); }
const fs::path& Lease::root() const { return impl_->root(); }
bool Lease::is_root_cleared() const { return impl_->is_cleared; }
void Lease::set_root_cleared() { impl_->is_cleared = true; }

}  // namespace cairn::root
