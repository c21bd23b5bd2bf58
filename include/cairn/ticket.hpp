// Handle of an asynchronous save.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/error.hpp"
#include "cairn/report.hpp"

namespace cairn {

/// Returned by Checkpointer::save_async(). Calls are rank-local unless they say otherwise; for one thread at a time.
/// May outlive the Checkpointer, whose destructor finishes the save. The ticket's destructor waits for the save; an
/// error then goes to the log and to the report of the next save.
class SaveTicket {
 public:
  /// A ticket of no save: done, with an empty report.
  SaveTicket() = default;
  ~SaveTicket();
  SaveTicket(SaveTicket&&) noexcept = default;
  SaveTicket& operator=(SaveTicket&& other) noexcept;

  [[nodiscard]] std::uint64_t step() const noexcept;
  /// The save was not started, since another one was running (WhenBusy::kSkip). The same on all ranks.
  [[nodiscard]] bool was_skipped() const noexcept;
  /// Whether the save has ended on this rank, in success or failure. Never waits, never throws.
  [[nodiscard]] bool test() const noexcept;
  /// Waits for the end. Returns the report of the save; its `stall` is the time that the program was blocked. Throws on
  /// all ranks alike what save() throws, and kState when the save was cancelled. May be called again.
  Report wait();
  /// Collective. Ends the save as soon as possible, and waits for that. True when nothing is left of the save, false
  /// when it was committed before, or had failed. The next save works.
  bool cancel();

 private:
  friend class Checkpointer;
  struct State;
  explicit SaveTicket(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace cairn
