// A directory for one test, removed with the object. It lies in the current directory (each ctest entry has its own),
// or in CAIRN_TEST_TMP if that is a directory.
#pragma once

#include <filesystem>

namespace cairn::test {

class TempDir {
 public:
  TempDir();
  ~TempDir();  ///< if CAIRN_TEST_KEEP is set, keeps the directory and prints its path
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& relative) const { return path_ / relative; }

 private:
  std::filesystem::path path_;
};

/// The steps of TempDir for other owners: makes an empty directory with a new name and returns its absolute path.
std::filesystem::path make_temp_directory();
void remove_temp_directory(const std::filesystem::path& path) noexcept;

}  // namespace cairn::test
