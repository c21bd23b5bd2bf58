// Options of the command line.
#pragma once

#include <cstdint>
#include <string>

namespace trainer {

struct Settings {
  std::string root = "trainer-run";
  std::uint64_t steps = 300;  ///< steps of the whole training, including those before a resume
  std::uint64_t every = 50;   ///< steps between checkpoints; 0: only on signals and at the end
  std::uint64_t log = 20;     ///< steps between lines about the loss
  std::uint64_t batch = 64;   ///< samples of all ranks together
  std::uint64_t width = 64;
  std::uint64_t seed = 1;
};

constexpr int kExitStopped = 75;  ///< after SIGTERM, or near the job's time limit: the state is saved; start again
                                  ///< (EX_TEMPFAIL of sysexits.h)

/// Throws std::invalid_argument, with a one-line message for the user.
Settings parse(int argc, char** argv);
/// The settings that two runs must share to resume from each other's checkpoints.
std::string run_of(const Settings& settings);

}  // namespace trainer
