// A selection of tensors of a checkpoint, and the checkpoint that has the others.
#pragma once

#include <cstdint>
#include <optional>
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

/// The checkpoint that has the tensors which a save of a part leaves out (Options::base). Recorded as given, but
/// `step` must exist. kUsage for texts that are not UTF-8 or above 1,024 bytes, and for both `step` and `path`.
struct BaseCheckpoint {
  std::optional<std::uint64_t> step = {};  ///< a step of the same root, which stays as long as the part (Retention)
  std::string path = {};                   ///< or a path or name: "/models/llama-8b", "meta-llama/Llama-3.1-8B"
  std::string identity = {};               ///< a text that tells the base from others: a run, a revision, a digest
};

}  // namespace cairn
