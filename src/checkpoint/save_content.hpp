// What a save commits beside its data: files that it was given to carry along, and those that its form has.
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

/// Rank 0's files to carry, which are there and can be read, before anything is written.
std::map<std::string, base::ByteStream> carried_content(const Extras& extras);

/// Of the files of a layout.
void add_sections(root::CommitContent& content, const plan::FileLayout& layout);

/// Small files that the save makes itself, by name.
void add_texts(root::CommitContent& content, std::map<std::string, std::string> texts);

/// Rank 0: what a form may want to know of a save. `carried`: of carried_content(). `with_config`: reads config.json,
/// wherever the extras have it.
interop::StateToWrite state_of_save(const Extras& extras, const std::map<std::string, base::ByteStream>& carried,
                                    std::uint64_t step, bool with_config);

}  // namespace cairn::checkpoint
