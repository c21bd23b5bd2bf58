// Files on disk for FileAccess, by plain POSIX calls.
#pragma once

#include "engine_conformance.hpp"
#include "os/file.hpp"

namespace cairn::test {

class PosixAccess final : public FileAccess {
 public:
  void read(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> data) const override {
    os::File(path, os::OpenMode::kRead).read_at(data, offset);
  }
  [[nodiscard]] std::uint64_t size_bytes(const std::filesystem::path& path) const override {
    return os::file_size(path);
  }
  void create(const std::filesystem::path& path, std::uint64_t size_bytes) const override {
    os::File(path, os::OpenMode::kCreateNew).set_size(size_bytes);
  }
  void set_size(const std::filesystem::path& path, std::uint64_t size_bytes) const override {
    os::File(path, os::OpenMode::kWrite).set_size(size_bytes);
  }
};

}  // namespace cairn::test
