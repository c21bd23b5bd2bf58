// A selection of tensors of a checkpoint.
#pragma once

#include <string>
#include <vector>

namespace cairn {

/// Patterns of sections and of names: '*' matches any characters, or none, and any other character matches itself. The
/// whole name must match: "layers.3.*" selects a prefix. A tensor is selected if each list has a pattern that matches;
/// an empty list matches all.
struct Selection {
  std::vector<std::string> sections;
  std::vector<std::string> names;
};

}  // namespace cairn
