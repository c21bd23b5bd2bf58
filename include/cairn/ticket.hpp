// Handle of an asynchronous save.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/error.hpp"
#include "cairn/report.hpp"

namespace cairn {

/// A running save, returned by Checkpointer::save_async(). Calls are rank-local unless marked as collective; only one
/// thread may use a ticket at a time. A ticket may outlive the Checkpointer, whose destructor finishes the save. The
/// ticket's destructor waits for the save; an error of the save is then in the log and in the next save's report.
class SaveTicket {
 public:
  /// A ticket without a save: done, with an empty report.
  SaveTicket() = default;
  ~SaveTicket();
  SaveTicket(SaveTicket&&) noexcept = default;
  SaveTicket& operator=(SaveTicket&& other) noexcept;

  [[nodiscard]] std::uint64_t step() const noexcept;
  /// Whether the save was not started because another one was running (WhenBusy::kSkip). The same on all ranks.
  [[nodiscard]] bool was_skipped() const noexcept;
  /// Whether the save has ended on this rank, in success or failure. Never waits, never throws.
  [[nodiscard]] bool test() const noexcept;
  /// Waits for the end. Returns the report of the save; Report::stall is the time for which the program was blocked.
  /// Throws the errors of save(), the same on all ranks, and kState if the save was cancelled. Can be called again.
  Report wait();
  /// Collective. Ends the save as soon as possible, and waits for its end. Returns true if nothing is left of the save,
  /// false if it had already been committed or had failed. Later saves are not affected.
  bool cancel();

 private:
  friend class Checkpointer;
  struct State;
  explicit SaveTicket(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace cairn
