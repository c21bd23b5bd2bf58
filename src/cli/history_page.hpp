// The past of a run as one page of HTML: the log of its root, its checkpoints, and the interval between saves beside
// the advice.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cairn/advice.hpp"
#include "cairn/history.hpp"
#include "format/run_log.hpp"
#include "root/root.hpp"

namespace cairn::cli {

struct RunPast {
  std::filesystem::path root;
  std::int64_t now_ms = 0;  ///< Unix time
  format::RunLog log;
  RunHistory history;
  std::vector<root::RootEntry> checkpoints;
  std::optional<Advice> advice;
  RunCosts costs;                         ///< of the advice
  std::string why_no_advice;              ///< one line, without `advice`
  std::vector<std::string> advice_notes;  ///< the sources of its figures
};

/// The results in sentences, the most important first.
std::vector<std::string> sentences_of(const RunPast& past);

/// Well-formed XML as well. Every figure has a unit, and the page names the source of each.
std::string history_page(const RunPast& past);

}  // namespace cairn::cli
