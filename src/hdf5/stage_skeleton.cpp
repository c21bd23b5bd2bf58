#include "base/internal_error.hpp"
#include "hdf5/stage_file.hpp"

#include <fmt/core.h>

#include <new>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/crc32c.hpp"
#include "format/safetensors.hpp"
#include "hdf5/handle.hpp"
#include "hdf5/memory_driver.hpp"
#include "hdf5/stage_datasets.hpp"
#include "hdf5/stage_format.hpp"
#include "hdf5/stage_objects.hpp"
#include "os/file.hpp"

namespace cairn::hdf5 {
namespace {

constexpr std::uint64_t kAlignedFromUnits = 16;
constexpr hsize_t kMetadataBlockBytes = 64 << 10;

/// Chooses the metadata format of HDF5 1.8: readable everywhere and, unlike that of 1.6, protected by checksums.
Handle file_access(const StageContent& content, SparseImage& image, const Checker& check) {
  Handle access = check.handle(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access list of");
  check.done(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), "choosing the version of");
  check.done(H5Pset_alignment(access.get(), kAlignedFromUnits * content.align_bytes, content.align_bytes),
             "setting the alignment of");
  check.done(H5Pset_meta_block_size(access.get(), kMetadataBlockBytes), "setting the metadata blocks of");
  use_image(access.get(), image, check);
  return access;
}

Handle creation_list(hid_t list_class, const Checker& check) {
  Handle creation = check.handle(H5Pcreate(list_class), H5Pclose, "creation list of");
  check.done(H5Pset_obj_track_times(creation.get(), false),
             "switching off times in");  // so that equal content gives equal bytes
  return creation;
}

Handle dataset_creation(const Checker& check) {
  Handle creation = creation_list(H5P_DATASET_CREATE, check);
  check.done(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), "setting the layout of");
  check.done(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), "setting the allocation of");
  check.done(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "setting the fill time of");
  return creation;
}

Handle utf8_links(const Checker& check) {
  Handle links = check.handle(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "link creation list of");
  check.done(H5Pset_char_encoding(links.get(), H5T_CSET_UTF8), "link creation list of");
  return links;
}

using Checksums = std::map<std::string, std::uint32_t>;

Checksums checksums_of(const std::map<std::string, base::ByteStream>& carried) {
  Checksums checksums;
  for (const auto& [name, stream] : carried) {
    format::RunningCrc32c crc;
    stream.give([&](std::span<const std::byte> piece) { crc.add(piece); });
    checksums[name] = crc.value();
  }
  return checksums;
}

class SkeletonWriter {
 public:
  SkeletonWriter(const std::filesystem::path& path, const StageContent& content, SparseImage& image)
      : check_(ErrorKind::kIo, path), content_(content) {
    const Handle creation = creation_list(H5P_FILE_CREATE, check_);
    file_ =
        check_.handle(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), file_access(content, image, check_).get()),
                      H5Fclose, "making");
    group_creation_ = creation_list(H5P_GROUP_CREATE, check_);
    dataset_creation_ = dataset_creation(check_);
    links_ = utf8_links(check_);
  }

  void put_own(const Checksums& checksums) {
    put_number(file_.get(), "cairn_format_version", kStageVersion, check_);
    put_text(file_.get(), "tool", content_.tool, check_);
    put_text(file_.get(), "run_id", content_.run_id, check_);
    put_text(file_.get(), "layout", content_.layout, check_);
    if (content_.step) put_number(file_.get(), "step", *content_.step, check_);
    const Handle own = make_group(file_.get(), kOwnGroup);
    put_text_dataset(own.get(), "manifest", content_.manifest, dataset_creation_.get(), check_);
    const Handle files = make_group(own.get(), "files");
    for (const auto& [name, stream] : content_.carried) {
      const Handle dataset =
          make_bytes_dataset(files.get(), link_name(name).c_str(), {stream.size_bytes, checksums.at(name)},
                             dataset_creation_.get(), check_);
      index_ += std::string(kOwnGroup) + "/files/" + link_name(name) + "\n";
      put_text(dataset.get(), "name", name, check_);
      if (stream.size_bytes == 0) continue;
      places_[name] = H5Dget_offset(dataset.get());
      check_.done(places_[name] == HADDR_UNDEF ? -1 : 0, "asking for the place of a dataset in");
    }
  }

  /// Returns the offset of the tensor's bytes; 0 if there are none.
  std::uint64_t put_tensor(const format::StoredTensor& tensor) {
    const Handle type = stage_type(tensor.dtype, check_);
    const Handle space = make_space(tensor);
    const Handle dataset =
        check_.handle(H5Dcreate2(group_of(tensor.section), link_name(tensor.name).c_str(), type.get(), space.get(),
                                 links_.get(), dataset_creation_.get(), H5P_DEFAULT),
                      H5Dclose, fmt::format("making the dataset of '{}' in", base::printable(tensor.name)));
    index_ += section_link_name(tensor.section) + "/" + link_name(tensor.name) + "\n";
    put_text(dataset.get(), "name", tensor.name, check_);
    put_text(dataset.get(), "section", tensor.section, check_);
    put_text(dataset.get(), "dtype", std::string(name_of(tensor.dtype)), check_);
    if (is_packed(tensor.dtype)) put_numbers(dataset.get(), "shape", tensor.shape, check_);
    if (format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name) == 0) return 0;
    const haddr_t offset = H5Dget_offset(dataset.get());
    check_.done(offset == HADDR_UNDEF ? -1 : 0, "asking for the place of a dataset in");
    return offset;
  }

  /// Offset of each carried file that is not empty.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& places() const { return places_; }

  /// Writes the index: the paths of all tensors and carried files added before. Call it last.
  void put_index() {
    const Handle own = check_.handle(H5Gopen2(file_.get(), kOwnGroup, H5P_DEFAULT), H5Gclose, "opening groups of");
    put_text_dataset(own.get(), "index", index_, dataset_creation_.get(), check_);
  }

  void close() {
    for (auto& [name, group] : groups_) check_.done(group.reset() ? 0 : -1, "closing");
    check_.done(file_.reset() ? 0 : -1, "closing");
  }

 private:
  Handle make_group(hid_t parent, const std::string& name) {
    return check_.handle(H5Gcreate2(parent, name.c_str(), links_.get(), group_creation_.get(), H5P_DEFAULT), H5Gclose,
                         "making a group in");
  }

  hid_t group_of(const std::string& section) {
    auto at = groups_.find(section);
    if (at == groups_.end()) {
      at = groups_.emplace(section, make_group(file_.get(), section_link_name(section))).first;
      put_text(at->second.get(), "name", section, check_);
    }
    return at->second.get();
  }

  Handle make_space(const format::StoredTensor& tensor) {
    const std::vector<hsize_t> dimensions = stage_dimensions(tensor);
    if (dimensions.size() > H5S_MAX_RANK) {
      throw Error(ErrorKind::kUsage, fmt::format("tensor '{}' has {} dimensions, HDF5 holds at most {}",
                                                 base::printable(tensor.name), dimensions.size(), H5S_MAX_RANK));
    }
    if (dimensions.empty()) return check_.handle(H5Screate(H5S_SCALAR), H5Sclose, "data space of");
    return check_.handle(H5Screate_simple(static_cast<int>(dimensions.size()), dimensions.data(), nullptr), H5Sclose,
                         "data space of");
  }

  Checker check_;
  const StageContent& content_;
  Handle file_;
  Handle group_creation_;
  Handle dataset_creation_;
  Handle links_;
  std::string index_;  // one path per line
  std::map<std::string, std::uint64_t> places_;
  std::map<std::string, Handle> groups_;  // by section
};

struct Placed {
  format::StoredCheckpoint stored;
  std::map<std::string, std::uint64_t> carried;  ///< file name -> offset of its bytes
};

Placed place(const std::filesystem::path& path, const StageContent& content, const Checksums& checksums,
             SparseImage& image) {
  const LibraryLock lock;
  Placed placed;
  placed.stored.tensors = content.tensors;
  SkeletonWriter writer(path, content, image);
  writer.put_own(checksums);
  for (format::StoredTensor& tensor : placed.stored.tensors) {
    const std::uint64_t offset = writer.put_tensor(tensor);
    tensor.boxes = {{0, offset, {std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape}}};
  }
  writer.put_index();
  placed.carried = writer.places();
  writer.close();
  if (image.is_incomplete) throw std::bad_alloc();
  placed.stored.files = {{path.filename().string(), image.size_bytes()}};
  return placed;
}

void check_places(const format::StoredCheckpoint& stored) {
  for (const format::StoredTensor& tensor : stored.tensors) {
    const std::uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    const auto end = base::try_add(tensor.boxes.front().offset_bytes, bytes);
    if (end && *end <= stored.files.front().size_bytes) continue;
    throw base::internal_error(
        fmt::format("HDF5 placed '{}' behind the end of the file", base::printable(tensor.name)));
  }
}

}  // namespace

format::StoredCheckpoint write_skeleton(const std::filesystem::path& path, const StageContent& content) {
  SparseImage image;
  const Checksums checksums = checksums_of(content.carried);
  Placed placed = place(path, content, checksums, image);
  check_places(placed.stored);
  os::File file(path, os::OpenMode::kCreateNew);
  file.set_size(image.size_bytes());
  image.for_each_page([&](std::uint64_t offset, std::span<const std::byte> data) { file.write_at(data, offset); });
  for (const auto& [name, offset] : placed.carried) {
    std::uint64_t at = offset;
    format::RunningCrc32c crc;
    content.carried.at(name).give([&](std::span<const std::byte> piece) {
      file.write_at(piece, at);
      crc.add(piece);
      at += piece.size();
    });
    if (crc.value() == checksums.at(name)) continue;
    throw Error(ErrorKind::kIo, fmt::format("'{}' was changed while it was copied", base::printable(name)));
  }
  file.close();
  return std::move(placed.stored);
}

}  // namespace cairn::hdf5
