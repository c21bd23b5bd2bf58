// Paths of a test's data and of the built programs. CTest sets the variables (cmake/CairnTargets.cmake); a program that
// is started by hand uses the paths of its own build.
#pragma once

#include <filesystem>
#include <string>

namespace cairn::test {

/// Sets CAIRN_TEST_DATA and CAIRN_BIN_DIR if they are not set. For main().
void set_missing_places();

/// tests/data/<relative>; throws std::runtime_error when CAIRN_TEST_DATA is unset or the path does not exist.
std::filesystem::path test_data(const std::filesystem::path& relative);

/// The built program `name`; throws std::runtime_error when CAIRN_BIN_DIR is unset or the program is not built.
std::filesystem::path program(const std::string& name);

/// The whole file as bytes; throws std::runtime_error naming the path.
std::string read_file(const std::filesystem::path& path);
/// Replaces the file's content; throws std::runtime_error naming the path.
void write_file(const std::filesystem::path& path, const std::string& content);

}  // namespace cairn::test
