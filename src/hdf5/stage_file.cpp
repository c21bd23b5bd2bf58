#include "hdf5/stage_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/safetensors.hpp"
#include "hdf5/handle.hpp"
#include "hdf5/stage_datasets.hpp"
#include "hdf5/stage_format.hpp"
#include "hdf5/stage_objects.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::hdf5 {
namespace {

void check_size(const std::filesystem::path& path, std::uint64_t expected, ErrorKind kind) {
  const std::uint64_t found = os::file_size(path);
  if (found == expected) return;
  throw Error(kind, fmt::format("cannot read: '{}' has {} bytes, expected {}", os::shown(path), found, expected));
}

std::string carried_link(const std::string& name) { return std::string(kOwnGroup) + "/files/" + link_name(name); }

/// Passes the fault hook of an operation, again after EINTR; throws Error for any other errno.
void pass_fault(std::string_view operation, const std::filesystem::path& path, const std::string& what) {
  int error = EINTR;
  while (error == EINTR) error = os::fault_error(operation, path);
  if (error != 0) os::throw_system_error(what, path, error);
}

// Lists the contents of a staging file: reads its index and checks every entry.
//
// Groups are not iterated: HDF5 1.10 frees memory that it does not own when a large group is damaged
// (H5G__dense_iterate). A lookup of one name at a time does not have that flaw, and a checksum protects the index.

class StageLister {
 public:
  explicit StageLister(const std::filesystem::path& path)
      : check_(ErrorKind::kFormat, path), file_bytes_(os::file_size(path)), file_(open_stage(check_)) {}

  StageDescription describe() {
    check_version();
    out_.stored.files = {{check_.path().filename().string(), file_bytes_}};
    const std::string own = std::string(kOwnGroup) + "/";
    out_.manifest = read_text(own + "manifest");
    const std::string index = read_text(own + "index");
    const std::vector<std::string_view> paths = lines_of(index);
    check_distinct(paths);
    for (const std::string_view path : paths) {
      if (path.starts_with(own)) {
        add_carried(std::string(path));
      } else {
        add_tensor(std::string(path));
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kFormat, fmt::format("'{}': {}", os::shown(check_.path()), what),
                {0, check_.path().native()});
  }

  static std::vector<std::string_view> lines_of(std::string_view index) {
    std::vector<std::string_view> lines;
    while (!index.empty()) {
      const std::size_t end = std::min(index.find('\n'), index.size());
      lines.push_back(index.substr(0, end));
      index.remove_prefix(std::min(end + 1, index.size()));
    }
    return lines;
  }

  /// A path that stands twice would make one tensor two. Each tensor has only one path (add_tensor).
  void check_distinct(std::vector<std::string_view> paths) const {
    std::ranges::sort(paths);
    const auto twice = std::ranges::adjacent_find(paths);
    if (twice != paths.end()) {
      refuse(fmt::format("its index lists '{}' twice: not as Cairn writes it; make the file again",
                         base::printable(*twice)));
    }
  }

  void check_version() const {
    const auto version = get_number(file_.get(), "cairn_format_version", check_);
    if (!version)
      refuse(
          "an HDF5 file, but none that Cairn wrote: it has no attribute 'cairn_format_version'; "
          "convert it to safetensors with the program that wrote it");
    if (*version == 0 || *version > kStageVersion) {
      refuse(
          fmt::format("the staging file has format version {}, this build of Cairn reads up to {}; use a newer Cairn",
                      *version, kStageVersion));
    }
  }

  [[nodiscard]] std::string read_text(const std::string& path) const {
    const Handle dataset = open_plain_dataset(file_.get(), path, check_);
    const base::Bytes bytes = get_bytes(dataset.get(), path, check_);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[nodiscard]] std::string need_text(hid_t object, const char* attribute, const std::string& link) const {
    const auto text = get_text(object, attribute, check_);
    if (!text)
      refuse(fmt::format("'{}' has no attribute '{}': not written by Cairn", base::printable(link), attribute));
    return *text;
  }

  void add_tensor(const std::string& link) {
    const Handle dataset = open_plain_dataset(file_.get(), link, check_);
    format::StoredTensor tensor;
    tensor.name = need_text(dataset.get(), "name", link);
    tensor.section = need_text(dataset.get(), "section", link);
    const std::string dtype = need_text(dataset.get(), "dtype", link);
    const auto known = dtype_from_name(dtype);
    if (!known) refuse(fmt::format("'{}' has the unknown dtype '{}'", base::printable(link), base::printable(dtype)));
    tensor.dtype = *known;
    if (section_link_name(tensor.section) + "/" + link_name(tensor.name) != link) {
      refuse(
          fmt::format("dataset '{}' says that it is tensor '{}'", base::printable(link), base::printable(tensor.name)));
    }
    tensor.shape = is_packed(tensor.dtype) ? packed_shape(dataset.get(), link) : shape_of(dataset.get());
    check_dataset(dataset.get(), tensor, check_);
    tensor.boxes = {
        {0, offset_of(dataset.get(), tensor), {std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape}}};
    out_.stored.tensors.push_back(std::move(tensor));
  }

  [[nodiscard]] std::vector<std::uint64_t> packed_shape(hid_t dataset, const std::string& link) const {
    const auto shape = get_numbers(dataset, "shape", check_);
    if (!shape) refuse(fmt::format("'{}' is of a sub-byte dtype and has no attribute 'shape'", base::printable(link)));
    return *shape;
  }

  [[nodiscard]] std::vector<std::uint64_t> shape_of(hid_t dataset) const {
    const Handle space = check_.handle(H5Dget_space(dataset), H5Sclose, "reading datasets of");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    check_.done(rank, "reading datasets of");
    std::vector<hsize_t> dimensions(static_cast<std::size_t>(rank));
    if (rank > 0) {
      check_.done(H5Sget_simple_extent_dims(space.get(), dimensions.data(), nullptr), "reading datasets of");
    }
    return {dimensions.begin(), dimensions.end()};
  }

  [[nodiscard]] std::uint64_t offset_of(hid_t dataset, const format::StoredTensor& tensor) const {
    const std::uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    if (bytes == 0) return 0;
    const haddr_t offset = H5Dget_offset(dataset);
    const auto end = base::try_add(offset, bytes);
    if (offset == HADDR_UNDEF || !end || *end > file_bytes_) {
      refuse(fmt::format("the {} bytes of tensor '{}' do not lie in the file of {} bytes", bytes,
                         base::printable(tensor.name), file_bytes_));
    }
    return offset;
  }

  void add_carried(const std::string& link) {
    const Handle dataset = open_plain_dataset(file_.get(), link, check_);
    const std::string name = need_text(dataset.get(), "name", link);
    if (std::string(kOwnGroup) + "/files/" + link_name(name) != link)
      refuse(fmt::format("'{}' says that it is '{}'", base::printable(link), base::printable(name)));
    out_.carried[name] = H5Dget_storage_size(dataset.get());
  }

  Checker check_;
  std::uint64_t file_bytes_;
  Handle file_;
  StageDescription out_;
};

}  // namespace

struct StageFile::State {
  explicit State(const std::filesystem::path& path) : check(ErrorKind::kIo, path) {}

  /// The tensor's dataset, checked; the last dataset stays open.
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
    check_size(check.path(), size_bytes, ErrorKind::kIo);  // HDF5 reads zeros past the end of a truncated file
  }

  Checker check;
  std::uint64_t size_bytes = 0;
  Handle file;
  Handle dataset;  // declared after `file`, so that it is closed first
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

StageDescription describe_stage(const std::filesystem::path& path) {
  const LibraryLock lock;
  return StageLister(path).describe();
}

}  // namespace cairn::hdf5
