#include "io/file_turns.hpp"

#include <algorithm>
#include <tuple>

namespace cairn::io {

std::vector<FileTurn> file_turns(const plan::ExtentMap& extents, std::uint32_t files, int rank) {
  std::vector<FileTurn> mine;
  int shared_files = 0;
  for (std::uint32_t file = 0; file < files; ++file) {
    const auto [first, last] = extents.workers_of_file(file);
    if (first > last) continue;
    const int turn = first < last ? shared_files++ % 2 : 2;
    if (first <= rank && rank <= last) mine.push_back({file, first, last, turn});
  }
  std::sort(mine.begin(), mine.end(),
            [](const FileTurn& a, const FileTurn& b) { return std::tie(a.turn, a.file) < std::tie(b.turn, b.file); });
  return mine;
}

int keeper_of_file(const plan::ExtentMap& extents, std::uint32_t file, int ranks) {
  const auto [first, last] = extents.workers_of_file(file);
  return first <= last ? first : static_cast<int>(file % static_cast<std::uint32_t>(ranks));
}

}  // namespace cairn::io
