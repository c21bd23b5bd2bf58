// Which files a rank takes part in, and in which order it goes through them. Pure: a function of the extent map.
//
// The workers of a file follow one another, and since shares of files do so too, the files of a group (plan/extents.hpp)
// that several ranks share form a chain: each has at most one rank in common with the next. Every rank goes through its
// files by turn, and by number inside a turn:
//   turn 0: shared files number 0, 2, 4 ... of the chain     turn 1: shared files number 1, 3, 5 ...
//   turn 2: files of this rank alone
// No deadlock: (turn, file) is one total order for all ranks. Of the files that any rank waits in, take the first: its
// members can only wait in files before it, of which there is none, so all of them come. No chain of waiting either:
// files of one turn and group have no rank in common, so a rank waits for at most one other file of the group. (In plain ascending order every
// file would wait for the one before it, from rank 0 to the last.)
#pragma once

#include <cstdint>
#include <vector>

#include "plan/extents.hpp"

namespace cairn::io {

struct FileTurn {
  std::uint32_t file = 0;
  int first = 0;  ///< ranks first..last open it together
  int last = 0;
  int turn = 0;
};

/// The files in which `rank` is between the first and the last worker, in the order to go through them.
std::vector<FileTurn> file_turns(const plan::ExtentMap& extents, std::uint32_t files, int rank);

/// The one rank that creates the file, and that checks its size: its first worker, or some rank when it has none (a file
/// without bytes, or of which no byte takes part).
int keeper_of_file(const plan::ExtentMap& extents, std::uint32_t file, int ranks);

}  // namespace cairn::io
