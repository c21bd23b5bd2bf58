#include "base/internal_error.hpp"

#include <fmt/core.h>

#include "base/log.hpp"

namespace cairn::base {

Error internal_error(std::string_view text, const char* path, int line) {
  std::string_view file = path;
  constexpr std::string_view kFolder = "src/";  // the path on the compiling machine may precede this
  if (const std::size_t at = file.rfind(kFolder); at != std::string_view::npos) file.remove_prefix(at + kFolder.size());
  const int rank = log_rank();
  return {ErrorKind::kInternal, fmt::format("{} (a bug in Cairn, at {}:{}{})", text, file, line,
                                            rank < 0 ? "" : fmt::format(" on rank {}", rank))};
}

}  // namespace cairn::base
