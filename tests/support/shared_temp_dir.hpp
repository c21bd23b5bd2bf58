// One directory for all ranks of an MPI test; rank 0 makes and removes it.
#pragma once

#include <filesystem>

namespace cairn::test {

/// Construction and destruction are collective over MPI_COMM_WORLD. A rank that leaves its test early (ASSERT_*) still
/// meets the others in the destructor, so that the directory exists as long as any rank may use it.
class SharedTempDir {
 public:
  SharedTempDir();
  ~SharedTempDir();
  SharedTempDir(const SharedTempDir&) = delete;
  SharedTempDir& operator=(const SharedTempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& relative) const { return path_ / relative; }

 private:
  std::filesystem::path path_;
};

}  // namespace cairn::test
