#include "root/run_name.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "root/root_state.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

/// The last saved checkpoint whose manifest has a run's name, which is optional; void steps of the run do not count.
RootEntry newest_named(std::vector<RootEntry> entries) {
  std::erase_if(entries, [](const RootEntry& entry) {
    return (entry.is_void && !entry.is_of_other_run) || entry.run_id.empty();
  });
  const RootEntry* const head = head_of(entries, {}, Counted::kAll);
  return head == nullptr ? RootEntry() : *head;
}

std::string shown(const std::string& name) { return base::printable(name); }

Error other_run(const fs::path& root, const std::string& text) {
  return {ErrorKind::kState, fmt::format("'{}': {}", os::shown(root), text), {0, root.native()}};
}

}  // namespace

std::string name_of_run(const fs::path& root, const RunRequest& request) {
  return name_of_run(root, os::exists(root) ? list_root(root) : std::vector<RootEntry>(), request);
}

std::string name_of_run(const fs::path& root, std::vector<RootEntry> entries, const RunRequest& request) {
  const std::string noted = read_root_state(root).run_id;
  const RootEntry newest = newest_named(std::move(entries));
  const std::string& known = newest.run_id.empty() ? noted : newest.run_id;
  if (request.name.empty()) {
    if (known.empty()) return os::random_nonce();
    if (noted.empty() || noted == known || request.allow_other) return known;
    throw other_run(root, fmt::format("this is the root of run '{}', but {} was saved by run '{}': name the one that "
                                      "goes on (Options::run_id), and set Options::allow_other_run",
                                      shown(noted), newest.directory.filename().string(), shown(newest.run_id)));
  }
  if (known.empty() || known == request.name || request.allow_other) return request.name;
  throw other_run(root, fmt::format("this is the root of run '{}', not of '{}' (Options::run_id); save into another "
                                    "root, or set Options::allow_other_run where this run takes it over",
                                    shown(known), shown(request.name)));
}

}  // namespace cairn::root
