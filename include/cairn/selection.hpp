// Which tensors of a checkpoint a call is about.
#pragma once

#include <string>
#include <vector>

namespace cairn {

/// Patterns of sections and of names: '*' stands for any text, also none, and everything else for itself; the whole
/// text must match, so that a prefix is "layers.3.*". A tensor is selected when any pattern of each list matches; an
/// empty list matches all.
struct Selection {
  std::vector<std::string> sections;
  std::vector<std::string> names;
};

}  // namespace cairn
