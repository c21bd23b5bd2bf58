// The small files of a save: carried files, and those of its form.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "interop/form.hpp"
#include "plan/file_layout.hpp"
#include "root/commit.hpp"

namespace cairn::checkpoint {

/// Rank 0's carried files. Throws before anything is written if one is missing or cannot be read.
std::map<std::string, base::ByteStream> carried_content(const Extras& extras);

/// Adds the sections of the layout's files.
void add_sections(root::CommitContent& content, const plan::FileLayout& layout);

/// Adds small files that the save makes itself, by name.
void add_texts(root::CommitContent& content, std::map<std::string, std::string> texts);

/// On rank 0: the facts about a save that a form may need. `carried` is carried_content().
/// `with_config`: reads config.json from the extras.
interop::StateToWrite state_of_save(const Extras& extras, const std::map<std::string, base::ByteStream>& carried,
                                    std::uint64_t step, bool with_config);

}  // namespace cairn::checkpoint
