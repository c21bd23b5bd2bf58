#include "root/pins.hpp"

#include <fmt/core.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "base/digits.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "root/lease_folder.hpp"
#include "root/root.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPinPrefix = "pin-";

fs::path pin_of(const fs::path& root, std::uint64_t step) {
  return root / kLeaseDirectory / fmt::format("{}{}", kPinPrefix, step);
}

}  // namespace

std::set<std::uint64_t> read_pins(const fs::path& root) {
  std::set<std::uint64_t> pins;
  const fs::path folder = root / kLeaseDirectory;
  if (!os::exists(folder)) return pins;
  for (const auto& entry : os::list_directory(folder)) {
    const std::string_view name = entry.name;
    if (!name.starts_with(kPinPrefix)) continue;
    if (const auto step = base::number_in<std::uint64_t>(name.substr(kPinPrefix.size()))) pins.insert(*step);
  }
  return pins;
}

bool is_pinned(const fs::path& root, std::uint64_t step) { return os::is_name_taken(pin_of(root, step)); }

void add_pin(const fs::path& root, std::uint64_t step) {
  const fs::path checkpoint = checkpoint_directory(root, step);
  if (!wait_for_name(checkpoint)) throw does_not_exist(checkpoint);
  const fs::path pin = pin_of(root, step);
  os::make_directory(pin.parent_path());
  auto file = os::create_exclusively(pin);
  if (!file) return;
  try {
    file->sync();
    file->close();
    os::sync_directory(pin.parent_path());
    os::fault_point("pin.made", pin);
    if (!wait_for_name(checkpoint)) throw does_not_exist(checkpoint);
  } catch (const Error&) {
    os::remove_tree(pin);
    throw;
  }
}

void remove_pin(const fs::path& root, std::uint64_t step) {
  const fs::path pin = pin_of(root, step);
  if (!os::is_name_taken(pin)) {
    throw Error(ErrorKind::kNotFound, fmt::format("step {} of '{}' is not pinned", step, os::shown(root)),
                {0, pin.native()});
  }
  os::remove_tree(pin);
  os::sync_directory(pin.parent_path());
}

bool wait_for_name(const fs::path& checkpoint) {
  constexpr int kLooks = 100;
  for (int look = 0; look < kLooks; ++look) {
    if (os::is_name_taken(checkpoint)) return true;
    if (!replaced_checkpoint(checkpoint)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return os::is_name_taken(checkpoint);
}

}  // namespace cairn::root
