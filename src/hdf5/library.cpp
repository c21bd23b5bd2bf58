#include "hdf5/library.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "hdf5/handle.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {
namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// HDF5 calls this for each entry, from the innermost outwards. The first is the cause; the others name outer calls.
herr_t keep_first(unsigned, const H5E_error2_t* entry, void* text) {
  auto& kept = *static_cast<std::string*>(text);
  if (kept.empty() && entry->desc != nullptr) kept = entry->desc;
  return 0;
}

}  // namespace

bool is_available() { return true; }

void require() {}

std::string version() {
  const LibraryLock lock;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

LibraryLock::LibraryLock() : lock_(library_mutex()) {
  static bool is_quiet = false;
  if (is_quiet) return;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  is_quiet = true;
}

std::string error_text() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  constexpr std::size_t kShownBytes = 400;
  return "HDF5: " + (text.empty() ? "no reason given" : base::printable(text, kShownBytes));
}

void fail(ErrorKind kind, std::string_view action, const std::filesystem::path& path) {
  throw Error(kind, fmt::format("{} '{}' failed: {}", action, os::shown(path), error_text()), {0, path.native()});
}

}  // namespace cairn::hdf5
