// The parts of staging files that need no HDF5: names of links, and the file's signature.
#include "hdf5/stage_format.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include "cairn/error.hpp"
#include "hdf5/stage_file.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {

std::string link_name(std::string_view name) {
  if (name.empty()) return "%";
  if (name == ".") return "%2E";
  std::string link;
  for (const char c : name) {
    switch (c) {
      case '/': link += "%2F"; break;
      case '\n': link += "%0A"; break;
      case '%': link += "%25"; break;
      case '\0': link += "%00"; break;
      default: link += c;
    }
  }
  return link;
}

std::string section_link_name(std::string_view section) {
  return section == kOwnGroup ? "%63airn" : link_name(section);
}

// HDF5's signature, read without HDF5.

bool looks_like_hdf5(const std::filesystem::path& path) {
  static constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  try {
    const os::File file(path, os::OpenMode::kRead);
    std::array<std::byte, kSignature.size()> found{};
    file.read_at(found, 0);
    return std::memcmp(found.data(), kSignature.data(), found.size()) == 0;
  } catch (const Error& error) {
    const int failed = error.system_error();  // 0: the file is too short, or not a regular file
    if (failed == 0 || failed == ENOENT || failed == ENOTDIR || failed == EISDIR) return false;
    throw;
  }
}

}  // namespace cairn::hdf5
