#include "cli/report.hpp"

#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/history_page.hpp"
#include "cli/json_output.hpp"
#include "comm/agree.hpp"
#include "life/history.hpp"
#include "os/file.hpp"
#include "root/run_log.hpp"

namespace cairn::cli {
namespace {

/// Throws only for a root that is not a directory: without an advice, the report says why.
RunPast look_back(const ReportOptions& options) {
  RunPast past;
  past.root = options.advice.root;
  past.now_ms = root::unix_time_ms();
  past.log = life::log_of(past.root);
  past.history = life::history_in(past.log);
  past.checkpoints = root::list_root(past.root);
  if (past.history.saves == 0) return past;
  try {
    const AdviceBasis basis = advice_basis(options.advice, past.history);
    past.costs = basis.input.costs;
    past.advice = advise(basis.input);
    past.advice_notes = past.advice->notes;
    past.advice_notes.insert(past.advice_notes.end(), basis.notes.begin(), basis.notes.end());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) throw;
    past.why_no_advice = error.what();
  }
  return past;
}

base::Json json_of(const MeasuredFigure& figure) {
  return figure.calls == 0 ? base::Json() : base::Json{{"median", figure.median}, {"calls", figure.calls}};
}

void print_document(Output& output, const RunPast& past) {
  const RunHistory& history = past.history;
  base::Json document = json_document("report");
  document["root"] = past.root.string();
  document["run_id"] = history.run_id;
  document["saves"] = history.saves;
  document["loads"] = history.loads;
  document["bad"] = history.bad;
  document["programs"] = history.programs;
  document["up_seconds"] = history.up_s;
  document["stall_seconds"] = json_of(history.stall_s);
  document["background_seconds"] = json_of(history.background_s);
  document["load_seconds"] = json_of(history.load_s);
  document["interval_seconds"] = json_of(history.interval_s);
  document["advised_seconds"] = past.advice ? json_number(past.advice->best.seconds) : base::Json();
  document["why_no_advice"] = past.why_no_advice;
  document["notes"] = past.advice_notes;
  print_json(output, document);
}

}  // namespace

int run_report(Context& context, const ReportOptions& options) {
  comm::agree_on_root(context.communicator, "report", 0, [&] {
    const RunPast past = look_back(options);
    if (!options.html_file.empty()) os::replace_file(options.html_file, base::as_bytes(history_page(past)));
    if (options.json) return print_document(context.output, past);
    for (const std::string& sentence : sentences_of(past)) context.output.line(sentence);
    for (const std::string& note : past.advice_notes) context.output.line("note: " + one_line(note));
    if (!past.why_no_advice.empty()) context.output.line("no advice: " + one_line(past.why_no_advice));
    if (!options.html_file.empty()) context.output.line("wrote " + base::printable(options.html_file.string()));
  });
  return kExitGood;
}

}  // namespace cairn::cli
