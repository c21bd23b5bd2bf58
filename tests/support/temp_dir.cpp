#include "temp_dir.hpp"

#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace cairn::test {

std::filesystem::path make_temp_directory() {
  const char* base = std::getenv("CAIRN_TEST_TMP");
  const bool elsewhere = base != nullptr && std::filesystem::is_directory(base);
  std::string name =
      ((elsewhere ? std::filesystem::path(base) : std::filesystem::current_path()) / "cairn-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("cannot make a directory " + name);
  }
  return name;
}

void remove_temp_directory(const std::filesystem::path& path) noexcept {
  if (std::getenv("CAIRN_TEST_KEEP") != nullptr) {
    std::printf("kept %s\n", path.c_str());
    return;
  }
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) {
    std::fprintf(stderr, "cannot remove %s: %s\n", path.c_str(), error.message().c_str());
  }
}

TempDir::TempDir() : path_(make_temp_directory()) {}
TempDir::~TempDir() { remove_temp_directory(path_); }

}  // namespace cairn::test
