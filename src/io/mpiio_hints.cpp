#include "io/mpiio_hints.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace cairn::io {
namespace {

enum class When { kAlways, kCollectiveWrites };

struct Default {
  std::string_view file_system;  ///< empty: every file system
  std::string_view key;
  std::string_view value;
  When when;
};

constexpr std::array<Default, 4> kDefaults = {{
    // Extents are contiguous and aligned: gathering them on one rank per node costs a copy and leaves the other ranks
    // idle. ROMIO's GPFS driver gathers by default, and its Lustre driver gathers unless a hint forbids it.
    {"", "romio_cb_write", "disable", When::kAlways},
    {"", "romio_cb_read", "disable", When::kAlways},
    // Bytes between two windows must not be read and written back, and must not be locked for that.
    {"", "romio_ds_write", "disable", When::kAlways},
    {"lustre", "romio_lustre_ds_in_coll", "disable", When::kCollectiveWrites},
}};

constexpr std::array<std::string_view, 12> kTelling = {
    "romio_cb_write",          "romio_cb_read", "romio_ds_write", "romio_no_indep_rw",
    "romio_lustre_ds_in_coll", "cb_nodes",      "cb_buffer_size", "direct_read",
    "romio_filesystem_type",   "direct_write",  "striping_unit",  "striping_factor",
};

bool moves_own_bytes(const Hints& hints, const char* buffering) {
  const auto is = [&](const char* key, std::string_view value) {
    const auto found = hints.find(key);
    return found != hints.end() && found->second == value;
  };
  // romio_no_indep_rw turns on collective buffering, whatever the other hints are.
  if (is("romio_no_indep_rw", "true") || is("romio_no_indep_rw", "TRUE")) return false;
  return is(buffering, "disable");
}

}  // namespace

Hints mpiio_hints(std::string_view file_system, const Hints& of_user) {
  Hints hints = of_user;
  for (const Default& given : kDefaults) {
    if (!given.file_system.empty() && given.file_system != file_system) continue;
    if (given.when == When::kCollectiveWrites && hints.at("romio_cb_write") == "disable") continue;
    hints.try_emplace(std::string(given.key), given.value);
  }
  return hints;
}

bool reads_own_bytes(const Hints& hints) { return moves_own_bytes(hints, "romio_cb_read"); }
bool writes_own_bytes(const Hints& hints) { return moves_own_bytes(hints, "romio_cb_write"); }

Hints hints_that_matter(const Hints& of_file, const Hints& passed) {
  Hints out;
  for (const auto& hint : of_file) {
    const bool tells = std::find(kTelling.begin(), kTelling.end(), hint.first) != kTelling.end();
    if (tells || passed.contains(hint.first)) out.insert(hint);
  }
  return out;
}

}  // namespace cairn::io
