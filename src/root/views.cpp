#include "root/views.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "root/lease_folder.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenLooks{20};

using os::shown;

/// An empty file that exists as long as the object.
class Mark {
 public:
  /// Throws when it cannot create the file.
  explicit Mark(fs::path path) : path_(std::move(path)) { os::File(path_, os::OpenMode::kCreateNew).close(); }
  ~Mark() {
    try {
      os::remove_tree(path_);
    } catch (const std::exception& error) {
      base::log_debug(error.what());  // an empty file that stays does no harm
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  fs::path path_;
};

bool sees(const fs::path& directory, const std::string& name) {
  if (os::check_fault("root.see", directory)) return false;
  if (os::exists(directory / name)) return true;
  if (!os::exists(directory)) return false;
  // Listing opens the directory, which makes the client of a network file system ask its server.
  const auto entries = os::list_directory(directory);
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
}

/// Whether only this machine has the directory, so that nothing can come from elsewhere.
bool is_local(const fs::path& directory) { return os::file_system_of(os::nearest_existing(directory)).is_local(); }

void look_for(const fs::path& directory, const std::string& name, std::chrono::milliseconds patience,
              comm::Liveness* liveness) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience;
  while (!sees(directory, name)) {
    if (!is_local(directory) && Clock::now() < end) {
      std::this_thread::sleep_for(kBetweenLooks);
      if (liveness != nullptr) liveness->worked();
      continue;
    }
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is not the directory that rank 0 sees under this name: it is on another file system "
                            "there, or not mounted; give a directory that all nodes share (cairn doctor DIRECTORY "
                            "looks from every node)",
                            shown(directory)),
                {0, directory.native()});
  }
}

}  // namespace

bool is_first_of_view(comm::Communicator& communicator) {
  const auto node = communicator.node();
  std::string view;
  comm::agree(communicator, "tell the nodes apart", [&] { view = os::mount_namespace(); });
  const auto views = node->all_gather(base::as_bytes(view));
  const auto mine = views.begin() + node->rank();
  return std::find(views.begin(), mine, *mine) == mine;
}

bool check_all_nodes_see(comm::Communicator& communicator, const fs::path& directory,
                         std::chrono::milliseconds patience) {
  const bool looks = is_first_of_view(communicator);
  if (communicator.sum(looks ? 1 : 0) == 1) return true;
  std::optional<Mark> mark;
  std::string name;
  comm::agree_on_root(communicator, "look for the root from every node", 0, [&] {
    name = fmt::format("{}.{}.look", kLeaseDirectory, os::random_nonce());
    try {
      mark.emplace(directory / name);
    } catch (const Error& error) {
      base::log_debug(error.what());
      name.clear();
    }
  });
  communicator.share(name, 0);
  if (name.empty()) return false;
  const auto liveness = communicator.liveness();
  comm::agree(communicator, "look for the root from every node", [&] {
    if (looks) look_for(directory, name, patience, liveness.get());
  });
  return true;
}

}  // namespace cairn::root
