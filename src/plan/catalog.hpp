// The catalog: every tensor of a checkpoint, section by section, in one canonical order.
//
// The order depends on the set of tensors alone, never on ranks. Sections come in the order model, optimizer,
// master_weights, adapter, then other sections by name. Inside a section names are in natural order: runs of digits
// compare as numbers ("layers.2" before "layers.10").
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/dtype.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::plan {

struct CatalogTensor {
  std::string section;
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::string coding = {};  ///< for the first stored tensor of coded moments: format::encode_coding(); otherwise empty

  friend bool operator==(const CatalogTensor&, const CatalogTensor&) = default;
};

struct Catalog {
  std::vector<CatalogTensor> tensors;
};

std::strong_ordering natural_order(std::string_view a, std::string_view b);

/// Compares the positions of two sections in catalogs and lists of files; other names come after the four above.
std::strong_ordering section_order(std::string_view a, std::string_view b);

/// Whether tensor a comes before tensor b in a catalog.
bool in_catalog_order(std::string_view section_a, std::string_view name_a, std::string_view section_b,
                      std::string_view name_b);

struct CatalogKey {
  std::string_view section;
  std::string_view name;

  friend bool operator==(const CatalogKey&, const CatalogKey&) = default;
};

/// Numbers of the keys in catalog order; equal keys keep the order in which they are given. For similar names this is
/// many times faster than sorting by in_catalog_order().
std::vector<std::uint32_t> catalog_order(std::span<const CatalogKey> keys);

using NumbersByName = std::map<std::pair<std::string_view, std::string_view>, std::uint32_t>;

/// Maps (section, name) to the position in `tensors`, whose strings must outlive the map.
template <class Tensors>
NumbersByName numbers_by_name(const Tensors& tensors) {
  static_assert(std::is_lvalue_reference_v<decltype(*tensors.begin())>, "the names must outlive the map");
  NumbersByName numbers;
  std::uint32_t number = 0;
  for (const auto& tensor : tensors) numbers[{tensor.section, tensor.name}] = number++;
  return numbers;
}

/// Sorts into catalog order. Throws Error(kState) if a (section, name) appears twice.
Catalog make_catalog(std::vector<CatalogTensor> tensors);

// The packed catalog, small enough for every rank: one string for all tensors in catalog order, in which each name is
// stored as its difference from the name before.
//
// The training state of a mixture of experts has 200,000 tensors with similar names: 50 MB as strings, 5 MB packed.
// In a run, every kRestart-th entry (64th) and the first of each section is a restart: a complete entry, so any tensor
// is found without reading from the start. Each rank makes a run; the runs are then joined end to end. Format (numbers
// are LEB128):
//
//   run      number of entries; number of restarts; for each restart its distance in bytes from the previous restart
//            and the number of its entry; the entries
//   entry    flags
//            restart: section and name, each with its length;
//            otherwise: number of bytes kept from the previous name, length and bytes of the rest
//            dtype, number of dimensions, each size; absent with flag 2
//            length and bytes of the coding; only with flag 4
//            place; only with flag 8, 16 or 32
//   flags    1 restart, 2 same dtype and shape, 4 coding, 8 file and offset, 16 after the previous tensor, 32 boxes
//   place    8: file, offset
//            16: no bytes; the tensor begins where the previous tensor in the same file ends
//            32: number of boxes; for each box file, offset, StoredBox::row_elems, offset and size by dimension

/// Makes a run. Tensors must be added in catalog order.
class CatalogPacker {
 public:
  void add(const CatalogTensor& tensor);
  /// Adds a tensor and its place.
  void add(const format::PlacedTensor& tensor);
  /// Returns the run, which is empty if nothing was added.
  base::Bytes take();

 private:
  void add(const format::PlacedTensor& tensor, std::string_view coding, bool has_place);
  void put_place(const format::PlacedTensor& tensor, std::uint64_t flags);

  std::uint64_t entries_ = 0;
  std::uint64_t last_restart_ = 0;
  base::Bytes offsets_;
  std::uint64_t restarts_ = 0;
  base::Bytes text_;
  // The previous tensor:
  std::string section_;
  std::string name_;
  DType dtype_ = DType::kF32;
  std::vector<std::uint64_t> shape_;
  std::uint64_t size_bytes_ = 0;
  std::uint32_t file_ = 0;
  std::uint64_t end_ = 0;  ///< end of the previous tensor in its file; 0: that tensor is in parts
};

class PackedCatalog {
 public:
  PackedCatalog() = default;
  /// `runs` follow each other in catalog order; empty runs are skipped. Throws Error(kInternal) if the list of restarts
  /// is broken or the restarts do not ascend. Broken entries are found only when they are read.
  explicit PackedCatalog(std::span<const base::Bytes> runs);
  explicit PackedCatalog(const Catalog& catalog);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::size_t packed_bytes() const { return text_.size(); }

  /// The whole catalog as one run.
  [[nodiscard]] base::Bytes run() const;

  /// Number of the tensor, or nullopt. Costs a binary search and the reading of about kRestart entries.
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view section, std::string_view name) const;
  /// Tensor by number. Requires: number < size().
  [[nodiscard]] CatalogTensor at(std::uint32_t number) const;
  /// Tensor by number, with its place. Requires: number < size(), and the catalog has places.
  [[nodiscard]] format::StoredTensor stored_at(std::uint32_t number) const;
  /// find() for many keys at once.
  [[nodiscard]] std::vector<std::optional<std::uint32_t>> find_all(std::span<const CatalogKey> keys) const;
  /// All tensors as objects.
  [[nodiscard]] Catalog unpacked() const;

  /// Walks the tensors; the catalog must outlive the cursor. Views are valid until the next call of next().
  class Cursor {
   public:
    /// Begins before tensor `number`.
    Cursor(const PackedCatalog& catalog, std::uint32_t number);
    /// Moves to the next tensor; false at the end.
    bool next();
    [[nodiscard]] std::uint32_t number() const { return next_ - 1; }
    [[nodiscard]] std::string_view section() const { return section_; }
    [[nodiscard]] std::string_view name() const { return name_; }
    [[nodiscard]] DType dtype() const { return dtype_; }
    [[nodiscard]] std::span<const std::uint64_t> shape() const { return shape_; }
    [[nodiscard]] std::string_view coding() const { return coding_; }
    /// If true, dtype and shape, and so the size, equal those of the previous tensor. Always false at a restart.
    [[nodiscard]] bool same_type() const { return same_type_; }
    [[nodiscard]] CatalogTensor tensor() const;
    /// Requires: the catalog has places.
    [[nodiscard]] format::PlacedTensor placed() const {
      return {section_, name_, dtype_, shape_, file_, offset_bytes_, in_parts_, boxes_};
    }
    [[nodiscard]] format::StoredTensor stored() const { return format::stored_tensor(placed()); }
    /// Bytes of the tensor.
    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

   private:
    void read_name(bool is_restart);
    void read_type();
    void read_place(std::uint64_t flags, std::uint64_t size_before);
    void read_boxes();

    const PackedCatalog& catalog_;
    std::size_t at_ = 0;
    std::uint32_t next_ = 0;
    std::string_view section_;
    std::string name_;
    DType dtype_ = DType::kF32;
    std::vector<std::uint64_t> shape_;
    std::string_view coding_;
    bool same_type_ = false;
    std::uint64_t size_bytes_ = 0;
    std::uint32_t file_ = 0;
    std::uint64_t offset_bytes_ = 0;
    bool in_parts_ = false;
    std::vector<format::StoredBox> boxes_;
  };

 private:
  friend class Cursor;
  struct Restart {
    std::uint32_t number = 0;
    std::size_t at = 0;  ///< offset in text_
  };
  void append(std::span<const std::byte> run);
  [[nodiscard]] CatalogKey key_at(const Restart& restart) const;
  /// The last restart at or before tensor `number`.
  [[nodiscard]] const Restart& restart_before(std::uint32_t number) const;

  std::uint32_t size_ = 0;
  std::vector<Restart> restarts_;
  base::Bytes text_;
};

}  // namespace cairn::plan
