#include "checkpoint/ticket.hpp"

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/log.hpp"

namespace cairn {
namespace {

void log_failure(std::uint64_t step, const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    base::log_error("step " + std::to_string(step) + " was not saved: " + error.what());
  } catch (...) {
  }
}

}  // namespace

SaveTicket::SaveTicket(std::shared_ptr<State> state) : state_(std::move(state)) {}

SaveTicket::~SaveTicket() {
  if (!state_ || !state_->save) return;
  state_->save->wait();
  if (state_->was_asked || !state_->save->failure()) return;
  log_failure(state_->step, state_->save->failure());
}

SaveTicket& SaveTicket::operator=(SaveTicket&& other) noexcept {
  SaveTicket before(std::move(*this));  // the destructor of `before` waits for the previous save
  state_ = std::move(other.state_);
  return *this;
}

std::uint64_t SaveTicket::step() const noexcept { return state_ ? state_->step : 0; }
bool SaveTicket::was_skipped() const noexcept { return state_ && state_->was_skipped; }
bool SaveTicket::test() const noexcept { return !state_ || !state_->save || state_->save->is_done(); }

Report SaveTicket::wait() {
  if (!state_ || !state_->save) return {};
  state_->was_asked = true;
  const Report& report = state_->save->report();
  try {
    return report;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kInternal,
                "step " + std::to_string(state_->step) + " is saved, but there is no memory for its report");
  }
}

bool SaveTicket::cancel() {
  if (!state_ || !state_->save) return false;
  state_->was_asked = true;
  state_->save->ask_to_cancel();
  state_->save->wait();
  return state_->save->was_cancelled();
}

}  // namespace cairn
