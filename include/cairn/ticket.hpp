// An asynchronous save on its way.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/error.hpp"
#include "cairn/report.hpp"

namespace cairn {

/// Of Checkpointer::save_async(). Rank-local, unless a call says otherwise; for one thread at a time. May outlive the
/// Checkpointer, which finishes the save before it goes. A ticket that goes waits for its save; what went wrong then is a
/// line in the log, and in the report of the next save.
class SaveTicket {
 public:
  /// Of no save: done, and its report is empty.
  SaveTicket() = default;
  ~SaveTicket();
  SaveTicket(SaveTicket&&) noexcept = default;
  SaveTicket& operator=(SaveTicket&& other) noexcept;

  /// The step.
  [[nodiscard]] std::uint64_t step() const noexcept;
  /// The save was not begun, since another one was under way (WhenBusy::kSkip). The same on all ranks.
  [[nodiscard]] bool was_skipped() const noexcept;
  /// Whether the save is over on this rank, well or not. Never waits, never throws.
  [[nodiscard]] bool test() const noexcept;
  /// Waits until it is. The report is that of a save; `stall` says what the program waited for. Throws on all ranks alike what
  /// save() throws, and kState when the save was cancelled. May be called again.
  Report wait();
  /// Collective. Ends the save as soon as may be, and waits for that: true when nothing is left of it, false when it was
  /// committed before, or had failed. The next save works.
  bool cancel();

 private:
  friend class Checkpointer;
  struct State;
  explicit SaveTicket(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace cairn
