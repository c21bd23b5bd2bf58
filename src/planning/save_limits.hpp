// What no load would open, refused before a save, a conversion or a staging writes anything: by format/limits.hpp, which
// readers go by. Rank-local; all throw Error(kUsage), naming what it is, how large, and the limit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cairn/options.hpp"
#include "format/manifest.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"

namespace cairn::planning {

/// Empty, or why no section can have this name: it names files, which must not look like parts of a set.
std::string section_problem(std::string_view section);

/// Block size and alignment; `__metadata__`, whose keys must not say how a file holds its tensors.
void check_file_options(const FileOptions& files);

/// Options::run_id, as it stands in a manifest.
void check_run_id(const std::string& run_id);

/// Throws for names that are Cairn's own, that a reader would take for data, or that no directory can have.
void check_carried_name(const std::string& name);

/// The names that a conversion takes over from its source: of files as check_carried_name(), and of sections, where they
/// name files.
void check_taken_names(const plan::Catalog& catalog, std::span<const std::string> carried);

/// The size of the block table of these files.
void check_block_table(std::span<const plan::DataFile> files, std::uint64_t block_bytes);

void check_index(std::string_view name, std::uint64_t bytes);

/// The texts of a manifest that has all but its files and checksums, and its size with these files. `of_user`: what its
/// user metadata are called where they were given.
void check_manifest(format::Manifest manifest, std::span<const plan::DataFile> files,
                    std::span<const std::string> carried, const char* of_user = "Extras::metadata");

}  // namespace cairn::planning
