// Lines for the user about a checkpoint that is written in another form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn::interop {

/// Notes, one line each. A note that says that something was lost, assumed, or asked for and not done is an omission:
/// `convert --strict` counts it. Other notes only inform.
struct Notes {
  std::vector<std::string> lines;
  std::uint64_t omissions = 0;  ///< number of the lines that are omissions

  void inform(std::string line);
  void omit(std::string line);
  void omit_all(const std::vector<std::string>& more);
  void append(const Notes& more);
};

}  // namespace cairn::interop
