// What a staging file holds: goes through its index and believes nothing.
//
// Groups are not iterated: HDF5 1.10 frees memory that it never had when a large group is damaged (H5G__dense_iterate).
// Looking for one name at a time has not that flaw, and the index is under a checksum.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/safetensors.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/handle.hpp"
#include "hdf5/link_names.hpp"
#include "hdf5/stage_dataset.hpp"
#include "hdf5/stage_file.hpp"
#include "hdf5/stage_skeleton.hpp"
#include "hdf5/stage_types.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {
namespace {

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
    for (std::size_t at = 0; at < index.size();) {
      const std::size_t end = std::min(index.find('\n', at), index.size());
      const std::string path = index.substr(at, end - at);
      if (path.starts_with(own)) {
        add_carried(path);
      } else {
        add_tensor(path);
      }
      at = end + 1;
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kFormat, fmt::format("'{}': {}", base::printable(check_.path().string(), 1000), what));
  }

  void check_version() const {
    const auto version = get_number(file_.get(), "cairn_format_version", check_);
    if (!version) refuse("an HDF5 file, but none that Cairn wrote: it has no attribute 'cairn_format_version'");
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

StageDescription describe_stage(const std::filesystem::path& path) {
  const LibraryLock lock;
  return StageLister(path).describe();
}

}  // namespace cairn::hdf5
