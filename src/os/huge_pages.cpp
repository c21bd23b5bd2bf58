#include "os/huge_pages.hpp"

#include <fstream>
#include <string>
#include <string_view>

namespace cairn::os {
namespace {

/// The word in brackets of a file like "always [madvise] never"; empty when there is none.
std::string chosen_word(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto begin = line.find('[');
  const auto end = line.find(']', begin);
  return end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

/// Since Linux 6.8 (6.12 for shared memory) pages of 2 MiB have a file of their own, which usually says "inherit".
std::string setting(const std::filesystem::path& settings, std::string_view name) {
  const std::string of_size = chosen_word(settings / "hugepages-2048kB" / name);
  return of_size.empty() || of_size == "inherit" ? chosen_word(settings / name) : of_size;
}

}  // namespace

HugePages huge_pages(const std::filesystem::path& settings) {
  const std::string of_private = setting(settings, "enabled");
  const std::string of_shared = setting(settings, "shmem_enabled");
  return {of_private == "always" || of_private == "madvise",
          of_shared == "always" || of_shared == "within_size" || of_shared == "advise" || of_shared == "force"};
}

}  // namespace cairn::os
