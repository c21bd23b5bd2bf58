// A hint for those who point at a folder too high: which of its folders hold data.
//
// Pipelines of diffusers, FSDP folders of accelerate, Orbax, torchtitan's step-<n> and Megatron's iter_<n> have the
// weights one folder further down.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/directory.hpp"

namespace cairn::interop {

/// The reason why a file of another system is not read, by its name: ".distcp files of torch DCP are not read ...".
/// Empty for any other file.
std::string why_unread(std::string_view file);

/// "its folders a, b hold data files: give one of them", the reason why the folders' files are not read, or "" if they
/// hold no data. `folders`: the folders of a directory; `list`: as FileAccess::list. Folders that cannot be
/// listed are passed over.
std::string hint_of_folders(std::span<const std::string> folders,
                            const std::function<std::vector<FolderEntry>(const std::string& folder)>& list);

}  // namespace cairn::interop
