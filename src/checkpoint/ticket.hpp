// The state of a SaveTicket.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/ticket.hpp"
#include "checkpoint/async.hpp"

namespace cairn {

struct SaveTicket::State {
  std::uint64_t step = 0;
  bool was_skipped = false;
  std::shared_ptr<checkpoint::SaveState> save;  ///< null: skipped
  bool was_asked = false;                       ///< wait() or cancel() was called
};

}  // namespace cairn
