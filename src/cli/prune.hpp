// `cairn prune`, `cairn pin`, `cairn unpin`: which checkpoints of a root stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cairn/retention.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

struct PruneCommand {
  std::filesystem::path root;
  Retention retention;
  PruneOptions options;
  double wait = 0;  ///< seconds to wait for another saver
  bool json = false;
};

/// A rule of "loss:min:2" or "loss:min". Throws Error(kUsage) for other texts.
BestBy best_in(const std::string& text);
/// A step, or a number of checkpoints, in decimal digits. Throws Error(kUsage) for other texts.
std::uint64_t number_in(const std::string& text);

/// Collective, though only rank 0 works. Returns kExitFailed if something that should have gone could not.
int run_prune(Context& context, const PruneCommand& command);

struct PinCommand {
  std::filesystem::path root;
  std::uint64_t step = 0;
  bool is_to_unpin = false;
};
/// Collective, though only rank 0 works.
int run_pin(Context& context, const PinCommand& command);

}  // namespace cairn::cli
