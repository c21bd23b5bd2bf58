// Lists a root of checkpoints.
#include "cli/list.hpp"

#include <fmt/core.h>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/root.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"

namespace cairn::cli {
namespace {

using checkpoint::RootEntry;

const char* state_of(const RootEntry& entry) {
  if (entry.partial) return "partial";
  if (!entry.complete) return "incomplete";
  return entry.is_void ? "void" : "complete";
}

void print_text(Output& output, const ListOptions& options, const std::vector<RootEntry>& entries) {
  Table table({{"step", Align::kRight},
               {"state"},
               {"bytes", Align::kRight},
               {"size", Align::kRight},
               {"files", Align::kRight},
               {"directory"},
               {"problem"}});
  std::size_t complete = 0;
  for (const RootEntry& entry : entries) {
    complete += entry.complete && !entry.is_void ? 1 : 0;
    table.add({std::to_string(entry.step), state_of(entry), group_digits(entry.bytes), base::format_size(entry.bytes),
               std::to_string(entry.files), base::printable(entry.directory.filename().string()),
               one_line(entry.problem)});
  }
  if (table.rows() != 0) output.line(table.text());
  output.line(fmt::format("{} checkpoints under '{}', {} complete", entries.size(),
                          base::printable(options.root.string()), complete));
}

void print_document(Output& output, const ListOptions& options, const std::vector<RootEntry>& entries) {
  base::Json document = json_document("ls");
  document["root"] = options.root.string();
  document["newest_complete_step"] = nullptr;
  base::Json rows = base::Json::array();
  if (const auto newest = checkpoint::newest_step(options.root, entries)) document["newest_complete_step"] = *newest;
  for (const RootEntry& entry : entries) {
    rows.push_back({{"step", entry.step},
                    {"state", state_of(entry)},
                    {"size_bytes", entry.bytes},
                    {"files", entry.files},
                    {"directory", entry.directory.string()},
                    {"problem", entry.problem}});
  }
  document["checkpoints"] = std::move(rows);
  print_json(output, document);
}

}  // namespace

int run_list(Context& context, const ListOptions& options) {
  comm::agree_on_root(context.communicator, "list", 0, [&] {
    if (!std::filesystem::is_directory(options.root)) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' is no directory; give the root of a run's checkpoints",
                                                    base::printable(options.root.string())));
    }
    const std::vector<RootEntry> entries = checkpoint::list_root(options.root);
    if (options.json) {
      print_document(context.output, options, entries);
    } else {
      print_text(context.output, options, entries);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
