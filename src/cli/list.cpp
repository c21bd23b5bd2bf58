// Lists a root of checkpoints.
#include "cli/list.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "directory/root.hpp"

namespace cairn::cli {

using checkpoint::RootEntry;

const char* state_of(const RootEntry& entry) {
  if (entry.partial) return "partial";
  if (!entry.complete) return "incomplete";
  return entry.is_void ? "void" : "complete";
}

namespace {

struct Listing {
  std::vector<RootEntry> entries;
  std::vector<checkpoint::Unfinished> unfinished;  ///< of other names
};

void print_text(Output& output, const ListOptions& options, const Listing& listing) {
  Table table({{"step", Align::kRight},
               {"state"},
               {"bytes", Align::kRight},
               {"size", Align::kRight},
               {"files", Align::kRight},
               {"directory"},
               {"problem"}});
  std::size_t complete = 0;
  for (const RootEntry& entry : listing.entries) {
    complete += entry.complete && !entry.is_void ? 1 : 0;
    table.add({std::to_string(entry.step), state_of(entry), group_digits(entry.bytes), base::format_size(entry.bytes),
               std::to_string(entry.files), base::printable(entry.directory.filename().string()),
               one_line(entry.problem)});
  }
  for (const checkpoint::Unfinished& unfinished : listing.unfinished) {
    table.add({"-", "partial", group_digits(unfinished.bytes), base::format_size(unfinished.bytes),
               std::to_string(unfinished.files), base::printable(unfinished.directory.filename().string()),
               "not committed: remove it when nothing writes it"});
  }
  if (table.rows() != 0) output.line(table.text());
  output.line(fmt::format("{} under '{}', {} complete", counted(listing.entries.size(), "checkpoint"),
                          base::printable(options.root.string()), complete));
}

void print_document(Output& output, const ListOptions& options, const Listing& listing) {
  const std::vector<RootEntry>& entries = listing.entries;
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
  base::Json unfinished = base::Json::array();
  for (const checkpoint::Unfinished& one : listing.unfinished) {
    unfinished.push_back({{"directory", one.directory.string()},
                          {"destination", one.destination.string()},
                          {"size_bytes", one.bytes},
                          {"files", one.files}});
  }
  document["unfinished"] = std::move(unfinished);
  print_json(output, document);
}

}  // namespace

int run_list(Context& context, const ListOptions& options) {
  comm::agree_on_root(context.communicator, "list", 0, [&] {
    if (!std::filesystem::is_directory(options.root)) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' is not a directory; give the root of a run's checkpoints",
                                                    base::printable(options.root.string())));
    }
    const Listing listing{checkpoint::list_root(options.root), checkpoint::list_unfinished(options.root)};
    if (options.json) {
      print_document(context.output, options, listing);
    } else {
      print_text(context.output, options, listing);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
