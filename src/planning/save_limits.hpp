// Refuses states that no load would accept (format/limits.hpp), before a save, a conversion or staging writes anything.
// Rank-local. The checks throw Error(kUsage), naming the item and, if it is too large, its size and the limit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "cairn/options.hpp"
#include "format/manifest.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"

namespace cairn::planning {

/// The reason why a section cannot have this name, or "". It begins file names, which must not look like parts of a
/// set.
std::string section_problem(std::string_view section);

/// Checks block size, alignment, and the user's `__metadata__`: no key may describe how a file holds its tensors.
void check_file_options(const FileOptions& files);

/// Checks that keys and values, which are written to the manifest, are UTF-8. `what`: the option's name.
void check_texts(const std::map<std::string, std::string>& texts, const char* what);

/// Checks Options::run_id, which is written to the manifest.
void check_run_id(const std::string& run_id);

/// Throws for names that are too long or Cairn's own, would be taken for data or marks, or cannot be file names.
void check_carried_name(const std::string& name);

/// Checks the names that a conversion takes from its source: of files, as check_carried_name() does, and of sections.
void check_taken_names(const plan::Catalog& catalog, std::span<const std::string> carried);

/// Checks the size of the block table of these files.
void check_block_table(std::span<const plan::DataFile> files, std::uint64_t block_bytes);

void check_index(std::string_view name, std::uint64_t bytes);

/// Checks the strings of a manifest that lacks only its files and checksums, and its size with these files. `of_user`:
/// the option that gave the user metadata, for messages.
void check_manifest(format::Manifest manifest, std::span<const plan::DataFile> files,
                    std::span<const std::string> carried, const char* of_user = "Extras::metadata");

}  // namespace cairn::planning
