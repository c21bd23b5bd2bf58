// Files that PaddlePaddle's asynchronous saves leave: ".optimizer_weight.done.3" after rank 3 has written its part.
// Data files have their final names, and are listed by indexes, before they are complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "interop/reading.hpp"

namespace cairn::interop {

/// The name of a file that marks that one rank has written its part of an asynchronous save.
struct SignalName {
  std::string_view word;  ///< "model_weight", "master_weight" or "optimizer_weight"; empty: "saved_signal"
  std::uint32_t rank = 0;
};

/// Parses ".optimizer_weight.done.3" and "saved_signal_3"; nothing for any other name.
std::optional<SignalName> parse_signal_name(std::string_view file);

/// Throws Error(kFormat), naming the first missing ".done." signal, if there are other ones: the save has not ended.
/// Signals may be in a different directory, so their complete absence proves nothing.
void check_signals(Reading& reading);

}  // namespace cairn::interop
