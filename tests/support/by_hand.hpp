// The commands that start a test on several ranks without CTest.
#pragma once

#include <string>
#include <vector>

namespace cairn::test {

/// Two lines for a shell, in any folder: the first starts this program on `ranks` ranks, with the arguments of
/// `command`; the second lists its entries in CTest.
std::string commands_by_hand(int ranks, const std::vector<std::string>& command);

}  // namespace cairn::test
