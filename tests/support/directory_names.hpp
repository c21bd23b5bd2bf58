// Names in a directory.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace cairn::test {

/// Sorted names that begin with `prefix`.
inline std::vector<std::string> names_beginning_with(const std::filesystem::path& directory,
                                                     const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cairn::test
