// A driver for HDF5 that keeps the written bytes of a file in memory, without the holes between them. Includes hdf5.h:
// for this folder only.
//
// HDF5 1.10 does not survive a failing disk: if closing a file fails (no space left), the file stays in HDF5's tables,
// and the program crashes at exit. HDF5's own memory driver allocates the whole file, including its holes. So HDF5
// writes to this driver, whose writes never fail, and Cairn writes the bytes to disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

/// A file in memory: zeros except for the pages that were written.
class SparseImage {
 public:
  void write(std::uint64_t offset, std::span<const std::byte> data);
  void read(std::uint64_t offset, std::span<std::byte> data) const;
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  void set_size(std::uint64_t bytes) { size_bytes_ = bytes; }
  /// Whether memory ran out in a write that seemed successful to HDF5.
  bool is_incomplete = false;

  /// Visits the written pages in ascending order; the last one is cut at the end of the file.
  void for_each_page(const std::function<void(std::uint64_t offset, std::span<const std::byte> data)>& visit) const;

 private:
  static constexpr std::uint64_t kPageBytes = 16 << 10;
  std::map<std::uint64_t, std::vector<std::byte>> pages_;  // by page number
  std::uint64_t size_bytes_ = 0;
};

/// Makes the file that is opened with this access list live in `image`, which must outlive that file. One per image.
/// Throws an Error of the checker's kind.
void use_image(hid_t access, SparseImage& image, const Checker& check);

}  // namespace cairn::hdf5
