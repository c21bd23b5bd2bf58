#include "hdf5/memory_driver.hpp"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

namespace cairn::hdf5 {
namespace {

/// HDF5 uses the first member only.
struct ImageFile {
  H5FD_t known_to_hdf5{};
  SparseImage* image = nullptr;
  haddr_t end_of_allocation = 0;
};

/// The driver's data in a file access list.
struct ImageInfo {
  SparseImage* image = nullptr;
};

ImageFile& file_of(H5FD_t* file) { return *reinterpret_cast<ImageFile*>(file); }
const ImageFile& file_of(const H5FD_t* file) { return *reinterpret_cast<const ImageFile*>(file); }

H5FD_t* open_image(const char*, unsigned, hid_t access, haddr_t) noexcept {
  const auto* info = static_cast<const ImageInfo*>(H5Pget_driver_info(access));
  if (info == nullptr) return nullptr;
  auto* file = new (std::nothrow) ImageFile;
  if (file == nullptr) return nullptr;
  file->image = info->image;
  return &file->known_to_hdf5;
}

herr_t close_image(H5FD_t* file) noexcept {
  delete &file_of(file);
  return 0;
}

int compare_images(const H5FD_t* a, const H5FD_t* b) noexcept {
  const auto before = std::less<const SparseImage*>();
  if (before(file_of(a).image, file_of(b).image)) return -1;
  return before(file_of(b).image, file_of(a).image) ? 1 : 0;
}

herr_t query_image(const H5FD_t*, unsigned long* flags) noexcept {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t allocated_end(const H5FD_t* file, H5FD_mem_t) noexcept { return file_of(file).end_of_allocation; }

herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t end) noexcept {
  file_of(file).end_of_allocation = end;
  return 0;
}

haddr_t file_end(const H5FD_t* file, H5FD_mem_t) noexcept { return file_of(file).image->size_bytes(); }

herr_t read_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, void* buffer) noexcept {
  file_of(file).image->read(offset, {static_cast<std::byte*>(buffer), bytes});
  return 0;
}

/// Never fails or throws, because HDF5 could not handle that; `is_incomplete` reports lack of memory.
herr_t write_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, const void* buffer) noexcept {
  try {
    file_of(file).image->write(offset, {static_cast<const std::byte*>(buffer), bytes});
  } catch (const std::bad_alloc&) {
    file_of(file).image->is_incomplete = true;
  }
  return 0;
}

herr_t truncate_image(H5FD_t* file, hid_t, hbool_t) noexcept {
  file_of(file).image->set_size(file_of(file).end_of_allocation);
  return 0;
}

H5FD_class_t make_class() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 14, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(513);  // from the range for unregistered drivers
#endif
  driver.name = "cairn-memory";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(ImageInfo);
  driver.open = open_image;
  driver.close = close_image;
  driver.cmp = compare_images;
  driver.query = query_image;
  driver.get_eoa = allocated_end;
  driver.set_eoa = set_allocated_end;
  driver.get_eof = file_end;
  driver.read = read_image;
  driver.write = write_image;
  driver.truncate = truncate_image;
  const H5FD_mem_t dichotomy[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(dichotomy), std::end(dichotomy), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

void SparseImage::write(std::uint64_t offset, std::span<const std::byte> data) {
  size_bytes_ = std::max(size_bytes_, offset + data.size());
  while (!data.empty()) {
    const std::uint64_t at = offset % kPageBytes;
    const std::size_t count = std::min<std::uint64_t>(kPageBytes - at, data.size());
    std::vector<std::byte>& page = pages_[offset / kPageBytes];
    page.resize(kPageBytes);
    std::memcpy(page.data() + at, data.data(), count);
    data = data.subspan(count);
    offset += count;
  }
}

void SparseImage::read(std::uint64_t offset, std::span<std::byte> data) const {
  while (!data.empty()) {
    const std::uint64_t at = offset % kPageBytes;
    const std::size_t count = std::min<std::uint64_t>(kPageBytes - at, data.size());
    const auto page = pages_.find(offset / kPageBytes);
    if (page == pages_.end() || page->second.empty()) {
      std::memset(data.data(), 0, count);
    } else {
      std::memcpy(data.data(), page->second.data() + at, count);
    }
    data = data.subspan(count);
    offset += count;
  }
}

void SparseImage::for_each_page(
    const std::function<void(std::uint64_t offset, std::span<const std::byte> data)>& visit) const {
  for (const auto& [number, page] : pages_) {
    const std::uint64_t offset = number * kPageBytes;
    if (offset >= size_bytes_) return;
    visit(offset, std::span(page).first(std::min<std::uint64_t>(page.size(), size_bytes_ - offset)));
  }
}

void use_image(hid_t access, SparseImage& image, const Checker& check) {
  static const H5FD_class_t driver_class = make_class();
  // Registered in each call, because HDF5 forgets its drivers when MPI_Finalize shuts it down.
  const Handle driver = check.handle(H5FDregister(&driver_class), H5FDunregister, "choosing memory for");
  const ImageInfo info{&image};
  check.done(H5Pset_driver(access, driver.get(), &info), "choosing memory for");
}

}  // namespace cairn::hdf5
