// What a save commits beside its data: files that it was given to carry along, and what belongs to the layout.
#pragma once

#include <map>
#include <string>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "directory/commit.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// Rank 0's files to carry, which are there and can be read, before anything is written.
std::map<std::string, base::ByteStream> carried_content(const Extras& extras);

/// What stands beside the data of a layout: its indexes, on rank 0, and the sections of its files.
void add_layout(CommitContent& content, const plan::FileLayout& layout);

}  // namespace cairn::checkpoint
