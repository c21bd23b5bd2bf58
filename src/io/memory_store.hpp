// Files that live in this process: what the "memory" engine writes and reads. For tests.
//
// One store per process, keyed by path; thread-safe. Files are sparse: a page exists once something was written to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/bytes.hpp"

namespace cairn::io {

class MemoryStore {
 public:
  static MemoryStore& global();

  /// Throws Error(kIo) when the file exists.
  void create(const std::filesystem::path& path, std::uint64_t size_bytes);
  /// Throw Error(kNotFound) when there is no such file, Error(kIo) for bytes behind its end.
  void write(const std::filesystem::path& path, std::uint64_t offset, std::span<const std::byte> data);
  void read(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> data) const;
  [[nodiscard]] std::uint64_t size_bytes(const std::filesystem::path& path) const;

  // For tests.
  [[nodiscard]] bool exists(const std::filesystem::path& path) const;
  [[nodiscard]] base::Bytes content(const std::filesystem::path& path) const;
  void set_size(const std::filesystem::path& path, std::uint64_t size_bytes);  ///< cut short, or longer by zeros
  void clear();

 private:
  static constexpr std::uint64_t kPageBytes = 64ULL << 10;
  using Page = std::array<std::byte, kPageBytes>;
  struct Stored {
    std::uint64_t size_bytes = 0;
    std::map<std::uint64_t, std::unique_ptr<Page>> pages;  ///< by number; absent ones are zeros
  };
  [[nodiscard]] const Stored& find(const std::filesystem::path& path) const;
  [[nodiscard]] Stored& find(const std::filesystem::path& path);

  mutable std::mutex mutex_;
  std::map<std::string, Stored> files_;
};

}  // namespace cairn::io
