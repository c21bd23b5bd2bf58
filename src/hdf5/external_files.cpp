#include "hdf5/external_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/units.hpp"
#include "hdf5/handle.hpp"
#include "hdf5/memory_driver.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/system_error.hpp"

namespace cairn::hdf5 {
namespace {

// HDF5's drivers hand the bytes of a call to one write(2), which Linux cuts below 2 GiB; some count in int.
constexpr std::uint64_t kTransferBytes = 1ULL << 30;

struct ExternalFile {
  std::filesystem::path path;      ///< as it was given
  std::filesystem::path absolute;  ///< as it is opened
  Handle dataset;
};

Handle make_memory_file(SparseImage& image) {
  const Checker check(ErrorKind::kInternal, "(in memory)");
  const Handle access = check.handle(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access list of");
  use_image(access.get(), image, check);
  return check.handle(H5Fcreate("cairn-external-files", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose,
                      "creating HDF5 file");
}

/// Makes one transfer of `count` bytes at `offset` of the dataset; `move` is H5Dwrite or H5Dread.
template <class Move>
herr_t transfer(hid_t dataset, std::uint64_t offset, std::uint64_t count, Move move) {
  const hsize_t start = offset;
  const hsize_t size = count;
  const Handle in_file(H5Dget_space(dataset), H5Sclose);
  const Handle in_memory(H5Screate_simple(1, &size, nullptr), H5Sclose);
  if (!in_file.is_valid() || !in_memory.is_valid()) return -1;
  if (H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, &start, nullptr, &size, nullptr) < 0) return -1;
  errno = 0;
  return move(in_memory.get(), in_file.get());
}

/// What the failed call left behind: its errno, when the system call failed, and HDF5's words.
std::string reason(int error) {
  return (error != 0 ? os::internal::error_text(error) + " (" : "(") + error_text() + ")";
}

/// Goes through `bytes` in transfers, each after the fault hook of `operation`. `move(done, count)` returns the reason of
/// its failure, or nothing.
template <class Move>
void move_all(std::string_view operation, const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t offset,
              Move move) {
  for (std::uint64_t done = 0; done < bytes;) {
    std::uint64_t count = std::min(bytes - done, kTransferBytes);
    const auto fault = os::check_fault(operation, path);
    if (fault && fault->error == EINTR) continue;
    if (fault && fault->short_bytes) count = std::min(count, std::max<std::uint64_t>(*fault->short_bytes, 1));
    const std::uint64_t moved = fault && fault->lies ? os::half_of(count) : count;
    std::string failure;
    if (fault && fault->error != 0) {
      failure = os::internal::error_text(fault->error);
    } else if (moved != 0) {
      failure = move(done, moved);
    }
    if (!failure.empty()) {
      throw Error(ErrorKind::kIo,
                  fmt::format("{} of {} bytes at offset {} of '{}' through HDF5 failed: {}", operation, bytes - done,
                              offset + done, base::printable(path.string(), 1000), failure));
    }
    done += count;
  }
}

}  // namespace

struct ExternalFiles::State {
  SparseImage image;
  Handle file;                          // in `image`
  std::vector<ExternalFile> externals;  // after `file`, so that they are closed before it
};

ExternalFiles::ExternalFiles() : state_(std::make_unique<State>()) {
  const LibraryLock lock;
  state_->file = make_memory_file(state_->image);
}

ExternalFiles::~ExternalFiles() {
  const LibraryLock lock;
  state_.reset();
}

ExternalFiles::ExternalFiles(ExternalFiles&&) noexcept = default;
ExternalFiles& ExternalFiles::operator=(ExternalFiles&&) noexcept = default;

std::size_t ExternalFiles::add(const std::filesystem::path& path, std::uint64_t size_bytes) {
  const LibraryLock lock;
  const Checker check(ErrorKind::kIo, path);
  const std::filesystem::path absolute = std::filesystem::absolute(path);  // HDF5 puts a prefix before relative ones
  const hsize_t size = size_bytes;
  const Handle space = check.handle(H5Screate_simple(1, &size, nullptr), H5Sclose, "data space of");
  const Handle creation = check.handle(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation list of");
  check.done(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "setting the fill time of");
  check.done(H5Pset_external(creation.get(), absolute.c_str(), 0, size), "naming the external file");
  const std::string name = std::to_string(state_->externals.size());
  Handle dataset = check.handle(
      H5Dcreate2(state_->file.get(), name.c_str(), H5T_STD_U8LE, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
      H5Dclose, "making an external dataset of");
  state_->externals.push_back({path, absolute, std::move(dataset)});
  return state_->externals.size() - 1;
}

void ExternalFiles::write_at(std::size_t file, std::span<const std::byte> data, std::uint64_t offset) {
  const LibraryLock lock;
  const ExternalFile& external = state_->externals.at(file);
  move_all("write", external.path, data.size(), offset, [&](std::uint64_t done, std::uint64_t count) -> std::string {
    const herr_t status = transfer(external.dataset.get(), offset + done, count, [&](hid_t memory, hid_t place) {
      return H5Dwrite(external.dataset.get(), H5T_STD_U8LE, memory, place, H5P_DEFAULT, data.data() + done);
    });
    return status < 0 ? reason(errno) : "";
  });
}

void ExternalFiles::read_at(std::size_t file, std::span<std::byte> data, std::uint64_t offset) {
  const LibraryLock lock;
  const ExternalFile& external = state_->externals.at(file);
  move_all("read", external.path, data.size(), offset, [&](std::uint64_t done, std::uint64_t count) -> std::string {
    const herr_t status = transfer(external.dataset.get(), offset + done, count, [&](hid_t memory, hid_t place) {
      return H5Dread(external.dataset.get(), H5T_STD_U8LE, memory, place, H5P_DEFAULT, data.data() + done);
    });
    if (status < 0) return reason(errno);
    const std::uint64_t found = os::file_size(external.absolute);
    return found < offset + done + count ? fmt::format("the file ends at byte {}", found) : "";
  });
}

}  // namespace cairn::hdf5
