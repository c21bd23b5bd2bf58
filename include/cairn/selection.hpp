// A selection of tensors of a checkpoint.
#pragma once

#include <string>
#include <vector>

namespace cairn {

/// Patterns of sections and of names: '*' stands for any text, also none, and other characters for themselves. The
/// whole text must match: a prefix is "layers.3.*". A tensor is selected when any pattern of each list matches; an
/// empty list matches all.
struct Selection {
  std::vector<std::string> sections;
  std::vector<std::string> names;
};

}  // namespace cairn
