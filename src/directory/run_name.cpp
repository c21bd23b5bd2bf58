#include "directory/run_name.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "directory/root.hpp"
#include "os/file.hpp"
#include "os/process.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Of the checkpoint that was saved last and has a name: versions before 0.2 left it out where the program gave none.
struct NamedStep {
  std::string run;
  fs::path directory;
};

NamedStep newest_named(const fs::path& root) {
  NamedStep newest;
  if (!os::exists(root)) return newest;
  std::pair<Generation, std::uint64_t> place;
  for (const RootEntry& entry : list_root(root)) {
    if (!entry.has_manifest || entry.is_void || entry.run_id.empty()) continue;
    const std::pair own{entry.generation, entry.step};
    if (!newest.run.empty() && own < place) continue;
    place = own;
    newest = {entry.run_id, entry.directory};
  }
  return newest;
}

std::string shown(const std::string& name) { return base::printable(name); }

Error other_run(const fs::path& root, const std::string& text) {
  return {ErrorKind::kState, fmt::format("'{}': {}", base::printable(root.string(), 1000), text), {0, root.native()}};
}

}  // namespace

std::string name_of_run(const fs::path& root, const RunRequest& request) {
  const NamedStep newest = newest_named(root);
  const std::string noted = read_root_state(root).run_id;
  const std::string& known = newest.run.empty() ? noted : newest.run;
  if (request.name.empty()) {
    if (known.empty()) return os::random_nonce();
    if (noted.empty() || noted == known || request.allow_other) return known;
    throw other_run(root, fmt::format("this is the root of run '{}', but {} was saved by run '{}': name the one that "
                                      "goes on (Options::run_id), and set Options::allow_other_run",
                                      shown(noted), newest.directory.filename().string(), shown(newest.run)));
  }
  if (known.empty() || known == request.name || request.allow_other) return request.name;
  throw other_run(root, fmt::format("this is the root of run '{}', not of '{}' (Options::run_id); save into another "
                                    "root, or set Options::allow_other_run where this run takes it over",
                                    shown(known), shown(request.name)));
}

}  // namespace cairn::checkpoint
