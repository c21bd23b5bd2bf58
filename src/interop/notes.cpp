#include "interop/notes.hpp"

#include <utility>

namespace cairn::interop {

void Notes::inform(std::string line) { lines.push_back(std::move(line)); }

void Notes::omit(std::string line) {
  lines.push_back(std::move(line));
  ++omissions;
}

void Notes::omit_all(const std::vector<std::string>& more) {
  for (const std::string& line : more) omit(line);
}

void Notes::append(const Notes& more) {
  lines.insert(lines.end(), more.lines.begin(), more.lines.end());
  omissions += more.omissions;
}

}  // namespace cairn::interop
