#include "directory/takeover.hpp"

#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "directory/lease_folder.hpp"
#include "directory/root.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemovedPrefix = "removed.";

std::string shown(const fs::path& path) { return base::printable(path.string(), 1000); }

/// Clears one root of the names of some savers.
class Clearing {
 public:
  explicit Clearing(Lease& lease) : root_(lease.root()), folder_(root_ / kLeaseDirectory) {}

  void list(const std::function<bool(const std::string& nonce)>& is_to_go) {
    for (const auto& entry : os::list_directory(root_)) {
      if (const auto name = parse_root_name(entry.name); name && is_to_go(name->nonce)) names_.push_back(*name);
    }
  }

  /// First all that a saver could still publish, then what it replaced.
  void clear() {
    for (const RootName& name : names_) {
      if (name.kind == RootName::Kind::kPartial || name.kind == RootName::Kind::kTemporary)
        move_away(root_ / name.text);
    }
    for (const RootName& name : names_) {
      if (name.kind == RootName::Kind::kReplaced) settle(name);
    }
    delete_removed();
  }

 private:
  /// To where nobody looks for it; deleting takes its time.
  void move_away(const fs::path& path) {
    os::try_rename(path, folder_ / fmt::format("{}{}", kRemovedPrefix, os::random_nonce()));
  }

  void settle(const RootName& name) {
    const fs::path directory = checkpoint_directory(root_, name.step);
    if (name.nonce.empty()) {  // Cairn 0.1 renamed the directory itself
      if (os::try_rename(root_ / name.text, directory) == os::Renamed::kDone) say_restored(directory);
      return;
    }
    // Under a name that its saver does not know, and that readers understand: nothing is moved in or out from now on.
    const fs::path container = replaced_directory(directory, os::random_nonce());
    if (os::try_rename(root_ / name.text, container) != os::Renamed::kDone) return;
    os::fault_point("takeover.settle", container);
    const fs::path old = container / directory.filename();
    if (!os::exists(old)) return move_away(container);
    if (os::try_rename(old, directory) == os::Renamed::kDone) {
      say_restored(directory);
      return move_away(container);
    }
    const auto newer = generation_of(directory);
    if (newer && newer >= generation_of(old)) return move_away(container);
    base::log_warning(fmt::format("'{}' stays: '{}' is not complete, and readers take the old one", shown(container),
                                  shown(directory)));
  }

  static void say_restored(const fs::path& directory) {
    base::log_warning(
        fmt::format("'{}' was being replaced when its saver ended; the old one has its name again", shown(directory)));
  }

  void delete_removed() noexcept {
    try {
      for (const auto& entry : os::list_directory(folder_)) {
        if (entry.name.starts_with(kRemovedPrefix)) os::remove_tree(folder_ / entry.name);
      }
    } catch (const std::exception& error) {
      base::log_warning(fmt::format(
          "what an earlier saver left could not be deleted now ({}); the next saver tries again", error.what()));
    }
  }

  fs::path root_;
  fs::path folder_;
  std::vector<RootName> names_;
};

}  // namespace

void clear_root(Lease& lease) {
  os::refresh_directory(lease.root(), fmt::format("{}.{}.look", kLeaseDirectory, lease.nonce()));
  Clearing clearing(lease);
  clearing.list([&](const std::string& nonce) { return nonce != lease.nonce(); });
  // What was listed before this look is of nobody who took the lease later.
  lease.look();
  os::fault_point("takeover.looked", lease.root());
  clearing.clear();
}

void clear_own(Lease& lease) {
  Clearing clearing(lease);
  clearing.list([&](const std::string& nonce) { return nonce == lease.nonce(); });
  clearing.clear();
}

}  // namespace cairn::checkpoint
