#include "hdf5/stage_file.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/handle.hpp"
#include "hdf5/link_names.hpp"
#include "hdf5/stage_dataset.hpp"
#include "hdf5/stage_types.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::hdf5 {
namespace {

void check_size(const std::filesystem::path& path, std::uint64_t expected, ErrorKind kind) {
  const std::uint64_t found = os::file_size(path);
  if (found == expected) return;
  throw Error(kind, fmt::format("cannot read: '{}' has {} bytes, expected {}", base::printable(path.string(), 1000),
                                found, expected));
}

std::string carried_link(const std::string& name) { return std::string(kOwnGroup) + "/files/" + link_name(name); }

/// The fault hook of an operation, which is tried again when it is interrupted.
void pass_fault(std::string_view operation, const std::filesystem::path& path, const std::string& what) {
  int error = EINTR;
  while (error == EINTR) error = os::internal::fault_error(operation, path);
  if (error != 0) os::internal::throw_system_error(what, path, error);
}

}  // namespace

struct StageFile::State {
  explicit State(const std::filesystem::path& path) : check(ErrorKind::kIo, path) {}

  /// The tensor's dataset, checked; the last one stays open.
  hid_t dataset_of(const format::StoredTensor& tensor) {
    const std::string name = section_link_name(tensor.section) + "/" + link_name(tensor.name);
    if (name != open_name) {
      dataset.reset();
      open_name.clear();
      dataset = open_plain_dataset(file.get(), name, check);
      check_dataset(dataset.get(), tensor, check);
      open_name = name;
    }
    return dataset.get();
  }

  [[nodiscard]] Handle carried(const std::string& name) const {
    return open_plain_dataset(file.get(), carried_link(name), check);
  }

  void read(const format::StoredTensor& tensor, const std::vector<hsize_t>& offset, const std::vector<hsize_t>& shape,
            std::span<std::byte> memory) {
    const std::string what =
        fmt::format("read of {} bytes of tensor '{}' from", memory.size(), base::printable(tensor.name));
    pass_fault("read", check.path(), what);
    const hid_t from = dataset_of(tensor);
    const Handle type = stage_type(tensor.dtype, check);
    const Handle in_file = check.handle(H5Dget_space(from), H5Sclose, what);
    hsize_t count = 1;
    for (const hsize_t extent : shape) count *= extent;
    const Handle in_memory = check.handle(H5Screate_simple(1, &count, nullptr), H5Sclose, what);
    if (!shape.empty()) {
      check.done(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, offset.data(), nullptr, shape.data(), nullptr),
                 what);
    }
    check.done(H5Dread(from, type.get(), in_memory.get(), in_file.get(), H5P_DEFAULT, memory.data()), what);
    check_size(check.path(), size_bytes, ErrorKind::kIo);  // HDF5 reads zeros behind the end of a file cut short
  }

  Checker check;
  std::uint64_t size_bytes = 0;
  Handle file;
  Handle dataset;  // after `file`, so that it is closed before it
  std::string open_name;
};

StageFile::StageFile(const std::filesystem::path& path, std::uint64_t size_bytes) {
  const LibraryLock lock;
  pass_fault("open", path, "open for reading of");
  check_size(path, size_bytes, ErrorKind::kIntegrity);
  state_ = std::make_unique<State>(path);
  state_->size_bytes = size_bytes;
  state_->file = open_stage(state_->check);
}

StageFile::~StageFile() {
  const LibraryLock lock;
  state_.reset();
}

void StageFile::read_box(const format::StoredTensor& tensor, const Box& box, std::span<std::byte> memory) {
  const LibraryLock lock;
  state_->read(tensor, {box.offset.begin(), box.offset.end()}, {box.shape.begin(), box.shape.end()}, memory);
}

void StageFile::read_packed(const format::StoredTensor& tensor, std::uint64_t offset_bytes,
                            std::span<std::byte> memory) {
  const LibraryLock lock;
  state_->read(tensor, {offset_bytes}, {memory.size()}, memory);
}

std::uint64_t StageFile::carried_bytes(const std::string& name) {
  const LibraryLock lock;
  return H5Dget_storage_size(state_->carried(name).get());
}

base::Bytes StageFile::read_carried(const std::string& name) {
  base::Bytes bytes;
  give_carried(name, [&](std::span<const std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  return bytes;
}

void StageFile::give_carried(const std::string& name, const base::PutBytes& put) {
  const LibraryLock lock;
  pass_fault("read", state_->check.path(), "read of a carried file from");
  give_bytes(state_->carried(name).get(), carried_link(name), put, state_->check);
}

}  // namespace cairn::hdf5
