// Hugging Face files of a packed catalog. Each rank makes only the parts that it needs.
//
// Assigning tensors to files needs only sizes and is quick. Ordering tensors inside files and making headers takes
// a long time, so a rank makes
//
// 1. the headers of its share of the files, for their sizes, which are then shared among all ranks;
// 2. the headers of files that it writes a part of, and the places of its own tensors.
//
// Everything is a function of catalog and options, so all ranks agree.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cairn/tensor.hpp"
#include "format/hf_index.hpp"
#include "format/safetensors.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"

namespace cairn::plan {

class HfLayout {
 public:
  /// Assigns the tensors to files. Throws Error(kUsage) if a section cannot name a file or two files would have the
  /// same name, and SafetensorsError for a tensor of 2^64 bytes or more.
  HfLayout(PackedCatalog catalog, LayoutOptions options);

  [[nodiscard]] const PackedCatalog& catalog() const { return catalog_; }
  [[nodiscard]] std::uint32_t files() const { return static_cast<std::uint32_t>(files_.size()); }
  [[nodiscard]] std::uint32_t file_of(std::uint32_t tensor) const { return file_of_[tensor]; }
  /// Whether the file has tensors with LayoutOptions::is_apart.
  [[nodiscard]] bool is_apart(std::uint32_t file) const { return files_[file].is_apart; }
  /// For Assignment::group_of_file: a group for each section, and one before it for its files that are apart.
  [[nodiscard]] std::vector<std::uint32_t> group_of_files() const;
  /// Tensors of a file: at least one, ascending.
  [[nodiscard]] std::span<const std::uint32_t> tensors_of(std::uint32_t file) const { return files_[file].tensors; }
  [[nodiscard]] std::uint64_t data_bytes_of(std::uint32_t file) const { return files_[file].data_bytes; }
  /// Bytes of all tensors.
  [[nodiscard]] std::uint64_t tensor_bytes() const { return tensor_bytes_; }

  /// Makes the header of a file. Throws Error(kUsage) if format::encode_header refuses it.
  [[nodiscard]] format::EncodedHeader header_of(std::uint32_t file) const;

  /// Names and sizes of all files; tensors, headers and indexes are empty. `header_bytes[f]`: size of file f's header.
  [[nodiscard]] FileLayout without_content(std::span<const std::uint64_t> header_bytes) const;
  /// Adds the header of a file. Throws Error(kInternal) if the header does not give the file its size in `layout`.
  void add_header(FileLayout& layout, std::uint32_t file, format::EncodedHeader header) const;
  /// add_header(), and the places of all tensors of the file. Requires: layout.stored.tensors is long enough for them.
  void add_file(FileLayout& layout, std::uint32_t file, format::EncodedHeader header) const;
  /// The places of `tensors` (ascending), in that order, without a list of files. `layout` has the sizes of all files.
  [[nodiscard]] format::StoredCheckpoint places_of(const FileLayout& layout,
                                                   std::span<const std::uint32_t> tensors) const;

  /// The tensors of a section are consecutive, and so are its files.
  struct Section {
    std::string name;
    std::uint32_t first_tensor = 0;
    std::uint32_t end_tensor = 0;
    std::uint32_t first_file = 0;
    std::uint32_t end_file = 0;
  };
  [[nodiscard]] std::size_t sections() const { return sections_.size(); }
  [[nodiscard]] const Section& section(std::size_t number) const { return sections_[number]; }
  [[nodiscard]] const std::string& name_of(std::uint32_t file) const { return files_[file].name; }
  /// The index of section number `section`: from LayoutOptions::index_of, or Hugging Face's. Both strings are empty if
  /// the section has no index; Hugging Face's files have no index for a section of one file.
  [[nodiscard]] IndexFile index_of(std::size_t section) const;
  /// File name of Hugging Face's index of a section.
  [[nodiscard]] std::string index_name(std::size_t section) const;

 private:
  struct File {
    std::string name;
    std::uint32_t section = 0;
    std::uint64_t data_bytes = 0;
    std::vector<std::uint32_t> tensors;  ///< ascending
    bool is_apart = false;
  };
  void add_section(Section section, std::span<const std::uint64_t> sizes);
  using Groups = std::vector<std::vector<std::size_t>>;  ///< runs of tensors by file
  /// By run: whether all its tensors are apart.
  [[nodiscard]] std::vector<bool> runs_apart(const Section& section, std::span<const std::size_t> begins) const;
  /// Splits files whose headers could exceed LayoutOptions::max_header_bytes. Run i: tensors begins[i] to begins[i + 1]
  /// of the section; items[i]: its size.
  [[nodiscard]] Groups split_headers(const Section& section, Groups groups, std::span<const std::size_t> begins,
                                     std::span<const format::SplitItem> items) const;
  void check_names() const;
  void for_each_tensor(std::uint32_t file, const std::function<void(const PackedCatalog::Cursor&)>& visit) const;
  [[nodiscard]] std::vector<Tensor> content_of(std::uint32_t file) const;
  /// The dtype in headers for a dtype of the catalog.
  [[nodiscard]] DType stored_dtype(DType dtype) const;
  /// The tensor, stored whole at `offset_bytes` of the file.
  [[nodiscard]] format::StoredTensor stored_tensor(CatalogTensor tensor, std::uint32_t file,
                                                   std::uint64_t offset_bytes) const;
  struct Wanted {
    std::uint32_t tensor = 0;
    format::StoredTensor* to = nullptr;
  };
  /// Fills in the places of the wanted tensors of one file. `wanted`: ascending.
  void put_places(const FileLayout& layout, std::uint32_t file, std::span<const Wanted> wanted) const;

  PackedCatalog catalog_;
  LayoutOptions options_;
  std::vector<Section> sections_;
  std::vector<File> files_;
  std::vector<std::uint32_t> file_of_;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace cairn::plan
