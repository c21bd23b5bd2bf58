#include "os/neighbour.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/hints.hpp"
#include "os/file.hpp"

namespace cairn::os {

namespace fs = std::filesystem;

namespace {

/// Whether two neighbours of `a` have changed places in `b`.
bool is_exchanged(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  return at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] && a.substr(at + 2) == b.substr(at + 2);
}

}  // namespace

fs::path neighbour_of(const fs::path& missing) {
  constexpr std::size_t kMostNames = 10'000;
  std::error_code failed;
  fs::path folder;  // the part that exists
  auto part = missing.begin();
  while (part != missing.end() && fs::exists(folder / *part, failed)) folder /= *part++;
  if (part == missing.end() || part->empty()) return {};
  const std::string wanted = part->string();
  base::NearestName nearest(wanted);
  std::size_t names = 0;
  fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, failed);
  std::string name;
  for (; !failed && entry != fs::directory_iterator() && names < kMostNames; entry.increment(failed), ++names) {
    std::string each = entry->path().filename().string();
    nearest.consider(each);
    if (is_exchanged(wanted, each)) name = std::move(each);
  }
  if (name.empty()) name = nearest.found();
  if (name.empty()) return {};
  fs::path found = folder / name;
  fs::path whole = found;
  for (++part; part != missing.end(); ++part) whole /= *part;
  return fs::exists(whole, failed) ? whole : found;
}

std::string does_not_exist(const fs::path& path) {
  std::string text = "'" + shown(path) + "' does not exist";
  if (const fs::path neighbour = neighbour_of(path); !neighbour.empty())
    text += "; did you mean '" + shown(neighbour) + "'?";
  return text;
}

}  // namespace cairn::os
