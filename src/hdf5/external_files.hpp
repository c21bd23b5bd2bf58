// Plain files read and written through HDF5: each is the external raw data of a one-dimensional dataset of bytes.
//
// The datasets live in an HDF5 file in memory that is never written anywhere, so nothing but the plain files is on disk,
// and their bytes are what was written. Everything is local to the rank: no call waits for another rank, so a failed
// write is an error here and no hang elsewhere. HDF5 opens and closes the file in each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace cairn::hdf5 {

class ExternalFiles {
 public:
  ExternalFiles();
  ~ExternalFiles();
  ExternalFiles(ExternalFiles&&) noexcept;
  ExternalFiles& operator=(ExternalFiles&&) noexcept;

  /// Adds a file of that size (more than 0); it must exist when it is written or read. Returns its number: 0, 1 ...
  std::size_t add(const std::filesystem::path& path, std::uint64_t size_bytes);

  /// Moves all of `data` by hyperslabs of at most 1 GiB, passing the fault hooks (os/fault.hpp) "write" and "read".
  /// Requires that it lies inside the file. Throws Error(kIo). HDF5 reads zeros behind the end of a file that has become
  /// shorter, so the size is looked at after a read.
  void write_at(std::size_t file, std::span<const std::byte> data, std::uint64_t offset);
  void read_at(std::size_t file, std::span<std::byte> data, std::uint64_t offset);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::hdf5
