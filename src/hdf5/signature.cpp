// What an HDF5 file begins with; needs no HDF5.
#include <array>
#include <cstring>

#include "cairn/error.hpp"
#include "hdf5/stage_file.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {

bool looks_like_hdf5(const std::filesystem::path& path) {
  static constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  try {
    const os::File file(path, os::OpenMode::kRead);
    std::array<std::byte, kSignature.size()> found{};
    file.read_at(found, 0);
    return std::memcmp(found.data(), kSignature.data(), found.size()) == 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace cairn::hdf5
