#include "environment.hpp"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace cairn::test {

namespace {

std::filesystem::path below_variable(const char* variable, const std::filesystem::path& relative) {
  const char* base = std::getenv(variable);
  if (base == nullptr || *base == '\0') {
    throw std::runtime_error(std::string("the environment variable ") + variable + " is not set");
  }
  std::filesystem::path path = std::filesystem::path(base) / relative;
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error(path.string() + " does not exist");
  }
  return path;
}

}  // namespace

void set_missing_places() {
  setenv("CAIRN_TEST_DATA", CAIRN_BUILT_TEST_DATA, 0);
  setenv("CAIRN_BIN_DIR", CAIRN_BUILT_BIN_DIR, 0);
}

std::filesystem::path test_data(const std::filesystem::path& relative) {
  return below_variable("CAIRN_TEST_DATA", relative);
}

std::filesystem::path program(const std::string& name) { return below_variable("CAIRN_BIN_DIR", name); }

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path.string());
  }
  std::string content;
  std::vector<char> piece(256 << 10);
  do {  // in pieces: reading single characters took half of the time of some tests under a sanitizer
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    content.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (file.bad()) {
    throw std::runtime_error("reading " + path.string() + " failed");
  }
  return content;
}

void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

}  // namespace cairn::test
