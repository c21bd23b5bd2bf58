// What a staging file holds: goes through its groups and believes nothing.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/checked.hpp"
#include "base/units.hpp"
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

using Names = std::vector<std::string>;

herr_t add_name(hid_t, const char* name, const H5L_info_t*, void* names) noexcept {
  try {
    static_cast<Names*>(names)->emplace_back(name);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;  // no exception may pass through HDF5
  }
}

Names links_of(hid_t group, const Checker& check) {
  Names names;
  check.done(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, add_name, &names), "listing groups of");
  return names;
}

class StageLister {
 public:
  explicit StageLister(const std::filesystem::path& path)
      : check_(ErrorKind::kFormat, path), file_bytes_(os::file_size(path)), file_(open_stage(check_)) {}

  StageDescription describe() {
    check_version();
    out_.stored.files = {{check_.path().filename().string(), file_bytes_}};
    for (const std::string& name : links_of(file_.get(), check_)) {
      if (name == kOwnGroup) continue;
      const Handle group = open_group(file_.get(), name);
      for (const std::string& link : links_of(group.get(), check_)) add_tensor(group.get(), link);
    }
    const Handle own = open_group(file_.get(), kOwnGroup);
    const base::Bytes manifest = get_dataset(own.get(), "manifest", check_);
    out_.manifest.assign(reinterpret_cast<const char*>(manifest.data()), manifest.size());
    const Handle files = open_group(own.get(), "files");
    for (const std::string& link : links_of(files.get(), check_)) add_carried(files.get(), link);
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

  [[nodiscard]] Handle open_group(hid_t parent, const std::string& name) const {
    H5L_info_t info;
    check_.done(H5Lget_info(parent, name.c_str(), &info, H5P_DEFAULT), "looking for groups in");
    if (info.type != H5L_TYPE_HARD) {
      refuse(fmt::format("group '{}' is a link to somewhere else, which is not followed", base::printable(name)));
    }
    return check_.handle(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose, "opening groups of");
  }

  [[nodiscard]] std::string need_text(hid_t object, const char* attribute, const std::string& link) const {
    const auto text = get_text(object, attribute, check_);
    if (!text)
      refuse(fmt::format("'{}' has no attribute '{}': not written by Cairn", base::printable(link), attribute));
    return *text;
  }

  void add_tensor(hid_t group, const std::string& link) {
    const Handle dataset = open_plain_dataset(group, link.c_str(), check_);
    format::StoredTensor tensor;
    tensor.name = need_text(dataset.get(), "name", link);
    tensor.section = need_text(dataset.get(), "section", link);
    const std::string dtype = need_text(dataset.get(), "dtype", link);
    const auto known = dtype_from_name(dtype);
    if (!known) refuse(fmt::format("'{}' has the unknown dtype '{}'", base::printable(link), base::printable(dtype)));
    tensor.dtype = *known;
    if (link_name(tensor.name) != link) {
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

  void add_carried(hid_t group, const std::string& link) {
    const Handle dataset = open_plain_dataset(group, link.c_str(), check_);
    const std::string name = need_text(dataset.get(), "name", link);
    if (link_name(name) != link)
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
