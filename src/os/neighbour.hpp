// The message about a path that does not exist: it may be a typing error.
#pragma once

#include <filesystem>
#include <string>

namespace cairn::os {

/// The existing path that a user may have meant. Its name is near the first one that is missing (base::NearestName, or
/// two letters exchanged), in the same directory. Empty: none is near, or the directory cannot be read. Looks at no
/// more than 10,000 names.
std::filesystem::path neighbour_of(const std::filesystem::path& missing);

/// "'runs/lama' does not exist; did you mean 'runs/llama'?"; without the question if no name is near.
std::string does_not_exist(const std::filesystem::path& path);

}  // namespace cairn::os
