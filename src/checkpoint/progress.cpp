#include "checkpoint/progress.hpp"

#include <exception>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::chrono::milliseconds kTellInterval{100};

/// The exception that is being handled, on one line.
std::string text_of_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return base::printable(error.what(), base::kForeignTextBytes);
  } catch (...) {
    return "an exception of unknown type";
  }
}

Error error_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error;
  } catch (...) {
    return {ErrorKind::kInternal, text_of_exception()};
  }
}

thread_local ProgressScope* listener = nullptr;
thread_local int quiet_steps = 0;

}  // namespace

ProgressScope::ProgressScope(const Tell& tell, std::optional<std::uint64_t> step)
    : exceptions_(std::uncaught_exceptions()) {
  if (!tell || listener != nullptr) return;
  is_first_ = true;
  tell_ = &tell;
  last_.step = step;
  listener = this;
}

ProgressScope::~ProgressScope() {
  if (!is_first_) return;
  if (!is_told_ && std::uncaught_exceptions() == exceptions_) this->tell();
  listener = nullptr;
}

void ProgressScope::report(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept {
  const bool begins = phase != last_.phase || done < last_.bytes_done;
  if (begins && !is_told_) this->tell();  // the end of the previous phase
  last_.phase = phase;
  last_.bytes_done = done;
  last_.bytes_total = total;
  is_told_ = false;
  if (begins || Clock::now() - told_ >= kTellInterval) this->tell();
}

/// Calls the program's code in the middle of collective work, so exceptions must not end this rank's part.
void ProgressScope::tell() noexcept {
  is_told_ = true;
  if (tell_ == nullptr) return;
  std::string why;
  try {
    (*tell_)(last_);
    told_ = Clock::now();
    return;
  } catch (...) {
    why = text_of_exception();
  }
  tell_ = nullptr;
  base::log_warning("the progress callback threw, and is not called again in this call: " + why);
}

void report_progress(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept {
  if (quiet_steps == 0 && listener != nullptr) listener->report(phase, done, total);
}

void expect_seconds(double seconds) noexcept {
  if (listener != nullptr) listener->expect(seconds);
}

std::uint64_t share_of_bytes(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole) {
  if (part >= whole) return bytes;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(part) /
                                    static_cast<double>(whole));
}

void tell_end(const std::function<void(const SaveEnd&)>& on_done, SaveEnd end, const Report& report,
              const std::exception_ptr& failure) noexcept {
  if (!on_done) return;
  std::string why;
  try {
    std::optional<Error> error;
    if (failure) error = error_of(failure);
    end.report = error ? nullptr : &report;
    end.error = error ? &*error : nullptr;
    on_done(end);
    return;
  } catch (...) {
    why = text_of_exception();
  }
  base::log_error("the callback AsyncOptions::on_done threw after the save of step " + std::to_string(end.step) + ": " +
                  why);
}

QuietProgress::QuietProgress() { ++quiet_steps; }
QuietProgress::~QuietProgress() { --quiet_steps; }

}  // namespace cairn::checkpoint
