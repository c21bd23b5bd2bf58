// `cairn advise`: how often to save, from what saves and restarts cost and how often the job fails.
//
// The arithmetic is cairn::advise (include/cairn/advice.hpp). Figures that were not given are named in the output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/advice.hpp"
#include "cairn/history.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

/// Seconds; unset: not given.
struct AdviseOptions {
  std::string root;  ///< whose log has the costs and failures that are not given; empty: none
  std::optional<double> stall_s;
  std::optional<double> background_s;
  std::optional<double> load_s;
  std::optional<double> restart_s;
  std::optional<double> step_s;
  std::optional<double> mtbf_s;
  std::optional<std::uint64_t> nodes;
  double rate = 0;  ///< failures in 1000 node-days; 0: not given
  std::optional<std::uint64_t> failures;
  double hours = 0;  ///< in which `failures` were counted; 0: not given
  std::optional<double> run_s;
  bool json = false;
};

/// The input of cairn::advise. Options that are given come before the figures of `measured`, as a run recorded them.
/// Throws Error(kUsage), naming the options, if nothing says how often the job fails.
AdviceInput advice_input(const AdviseOptions& options, const AdviceInput& measured = {});

/// The input of an advice, and where its figures are from.
struct AdviceBasis {
  AdviceInput input;
  std::vector<std::string> notes;
};
/// `history`: of the root `options.root`, if one is given. Throws Error(kUsage), naming the options, for what is
/// neither given nor in the log.
AdviceBasis advice_basis(const AdviseOptions& options, const RunHistory& history);

/// Collective, though only rank 0 works. Throws Error(kUsage) for wrong figures.
int run_advise(Context& context, const AdviseOptions& options);

}  // namespace cairn::cli
