// Lists a root of checkpoints.
#include "cli/list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "opening/open.hpp"
#include "opening/parts.hpp"
#include "os/errno_class.hpp"

namespace cairn::cli {

using root::RootEntry;

const char* state_of(const RootEntry& entry) {
  if (entry.partial) return "partial";
  if (!entry.is_complete()) return "incomplete";
  return entry.is_void ? "void" : "complete";
}

namespace {

/// A readable step that Cairn did not write.
struct Foreign {
  std::string dialect;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
};

struct Listing {
  std::vector<RootEntry> entries;
  std::map<std::filesystem::path, Foreign> foreign;  ///< by directory
  std::vector<root::Unfinished> unfinished;  ///< unfinished directories of conversions, and of saves outside a root
  std::string hint;                          ///< without any entry: the folders that hold data
};

/// Finds steps of other systems, which contain no files of Cairn. An unreadable step stays incomplete, with a problem.
void look_at_foreign(const ListOptions& options, Listing& listing) {
  std::map<std::uint64_t, std::vector<std::filesystem::path>> parts;  // by step
  const auto add = [&](const RootEntry& entry) {
    if (opening::may_be_foreign(entry)) parts[entry.step].push_back(entry.directory);
  };
  std::ranges::for_each(listing.entries, add);
  for (const std::string& root : options.parts) {
    for (RootEntry& entry : root::list_root(root)) {
      add(entry);
      const auto known = std::ranges::find(listing.entries, entry.step, &RootEntry::step);
      if (known == listing.entries.end()) listing.entries.push_back(std::move(entry));
    }
  }
  std::ranges::stable_sort(listing.entries, {},
                           [](const RootEntry& entry) { return std::pair(entry.partial, entry.step); });
  for (RootEntry& entry : listing.entries) {
    const auto found = parts.find(entry.step);
    if (found == parts.end() || found->second.front() != entry.directory) continue;
    try {
      const opening::OpenCheckpoint opened =
          opening::open_here(found->second, options.follow_links ? opening::Links::kFollow : opening::Links::kInside);
      Foreign& foreign = listing.foreign[entry.directory];
      foreign.dialect = opened.about.dialect;
      foreign.files = opened.stored.files.size();
      for (const format::StoredFile& file : opened.stored.files) foreign.bytes += file.size_bytes;
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
      entry.problem += fmt::format("; {}", error.what());
    }
  }
}

void print_text(Output& output, const ListOptions& options, const Listing& listing) {
  Table table({">step", "state", ">bytes", ">size", ">files", "directory", "problem"});
  std::size_t complete = 0;
  for (const RootEntry& entry : listing.entries) {
    if (const auto foreign = listing.foreign.find(entry.directory); foreign != listing.foreign.end()) {
      const auto& [dialect, bytes, files] = foreign->second;
      table.add({std::to_string(entry.step), kForeign, group_digits(bytes), base::format_size(bytes),
                 std::to_string(files), base::printable(entry.directory.filename().string()),
                 fmt::format("of {}, no checksums", dialect)});
      continue;
    }
    complete += entry.is_complete() && !entry.is_void ? 1 : 0;
    table.add({std::to_string(entry.step), state_of(entry), group_digits(entry.bytes), base::format_size(entry.bytes),
               std::to_string(entry.files), base::printable(entry.directory.filename().string()),
               one_line(entry.problem)});
  }
  for (const root::Unfinished& unfinished : listing.unfinished) {
    table.add({"-", "partial", group_digits(unfinished.bytes), base::format_size(unfinished.bytes),
               std::to_string(unfinished.files), base::printable(unfinished.directory.filename().string()),
               "not committed: remove it when nothing writes it"});
  }
  if (table.rows() != 0) output.line(table.text());
  output.line(fmt::format("{} under '{}', {} complete", counted(listing.entries.size(), "checkpoint"),
                          base::printable(options.root.string()), complete));
  if (!listing.hint.empty()) output.line("note: " + one_line(listing.hint));
}

void print_document(Output& output, const ListOptions& options, const Listing& listing) {
  const std::vector<RootEntry>& entries = listing.entries;
  base::Json document = json_document("ls");
  document["root"] = options.root.string();
  document["newest_complete_step"] = nullptr;
  try {
    if (const auto newest = root::newest_step(options.root, entries)) document["newest_complete_step"] = *newest;
  } catch (const Error& error) {
    document["newest_problem"] = error.what();
  }
  document["checkpoints"] = base::Json::array_of(entries, [&](const RootEntry& entry) -> base::Json {
    const auto foreign = listing.foreign.find(entry.directory);
    const bool is_foreign = foreign != listing.foreign.end();
    return {{"step", entry.step},
            {"state", is_foreign ? kForeign : state_of(entry)},
            {"size_bytes", is_foreign ? foreign->second.bytes : entry.bytes},
            {"files", is_foreign ? foreign->second.files : entry.files},
            {"directory", entry.directory.string()},
            {"dialect", is_foreign ? foreign->second.dialect : ""},
            {"problem", entry.problem}};
  });
  document["hint"] = listing.hint;
  document["unfinished"] = base::Json::array_of(listing.unfinished, [](const root::Unfinished& one) -> base::Json {
    return {{"directory", one.directory.string()},
            {"destination", one.destination.string()},
            {"size_bytes", one.bytes},
            {"files", one.files}};
  });
  print_json(output, document);
}

}  // namespace

int run_list(Context& context, const ListOptions& options) {
  comm::agree_on_root(context.communicator, "list", 0, [&] {
    if (!std::filesystem::is_directory(options.root)) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' is not a directory; give the root of a run's checkpoints",
                                                    base::printable(options.root.string())));
    }
    Listing listing{root::list_root(options.root), {}, root::list_unfinished(options.root), {}};
    look_at_foreign(options, listing);
    if (listing.entries.empty()) listing.hint = opening::hint_of_folders(options.root);
    if (options.json) {
      print_document(context.output, options, listing);
    } else {
      print_text(context.output, options, listing);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
