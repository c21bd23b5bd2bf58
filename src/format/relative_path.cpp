// Which names from a file may be joined to a directory. Judged as POSIX and as Windows would see them, on every system.
#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "format/hf_index.hpp"

namespace cairn::format {
namespace {

const char* problem_of(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.find('\0') != std::string_view::npos) return "contains a NUL";
  if (name.find('\\') != std::string_view::npos) return "contains a backslash";
  if (name.front() == '/') return "is absolute";
  const char first = name.front();
  const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  if (letter && name.size() > 1 && name[1] == ':') return "has a drive letter";
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, slash - at);
    if (part.empty()) return "has an empty part";
    if (part == "." || part == "..") return "has a '.' or '..' part";
    at = slash + 1;
  }
  return nullptr;
}

}  // namespace

void check_relative_path(std::string_view name, std::string_view context) {
  if (const char* problem = problem_of(name)) {
    base::fail_format(context,
                      fmt::format("file name '{}' {}; it must be a relative path inside the checkpoint directory",
                                  base::printable(name), problem));
  }
}

}  // namespace cairn::format
