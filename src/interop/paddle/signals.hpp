// Files that PaddlePaddle's asynchronous saves leave: ".optimizer_weight.done.3" after rank 3 has written its part.
// Data files have their final names, and are listed by indexes, before they are complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "interop/reading.hpp"

namespace cairn::interop {

/// The mark that one rank had written its part of an asynchronous save.
struct SignalName {
  std::string_view word;  ///< "model_weight", "master_weight" or "optimizer_weight"; empty: all three
  std::uint32_t rank = 0;
};

/// Parses ".optimizer_weight.done.3" and "saved_signal_3"; nothing for any other name.
std::optional<SignalName> parse_signal_name(std::string_view file);

/// Throws Error(kFormat), naming the first missing signal, if there are other signals: the save has not ended. Signals
/// may be in a different directory, so their complete absence proves nothing.
void check_signals(Reading& reading);

}  // namespace cairn::interop
