// All tensors of a checkpoint that is read, with their places: packed (catalog.hpp), and unpacked one at a time.
//
// StoredTensors looks like a list of StoredTensor, but creates each element on access, so a loop over the list creates
// all of them. A cursor creates no elements.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "format/stored_checkpoint.hpp"
#include "plan/catalog.hpp"

namespace cairn::plan {

class StoredTensors {
 public:
  StoredTensors() = default;
  explicit StoredTensors(PackedCatalog catalog) : catalog_(std::move(catalog)) {}
  /// `tensors`: in any order; equal names keep the order in which they are given.
  explicit StoredTensors(std::span<const format::PlacedTensor> tensors);
  StoredTensors(const std::vector<format::StoredTensor>& tensors);  // NOLINT: the same in another form

  [[nodiscard]] const PackedCatalog& catalog() const { return catalog_; }
  [[nodiscard]] std::uint32_t size() const { return catalog_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Requires: number < size(). Returns a new object, and reads up to 64 entries of the packed catalog.
  [[nodiscard]] format::StoredTensor operator[](std::size_t number) const {
    return catalog_.stored_at(static_cast<std::uint32_t>(number));
  }
  /// Throws std::out_of_range.
  [[nodiscard]] format::StoredTensor at(std::size_t number) const;
  [[nodiscard]] PackedCatalog::Cursor cursor() const { return {catalog_, 0}; }

  class Iterator {
   public:
    using value_type = format::StoredTensor;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(const PackedCatalog& catalog) : cursor_(catalog, 0) { is_end_ = !cursor_.next(); }
    [[nodiscard]] format::StoredTensor operator*() const { return cursor_.stored(); }
    Iterator& operator++() {
      is_end_ = !cursor_.next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& at, std::default_sentinel_t) { return at.is_end_; }

   private:
    PackedCatalog::Cursor cursor_;
    bool is_end_ = false;
  };
  [[nodiscard]] Iterator begin() const { return Iterator(catalog_); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  PackedCatalog catalog_;
};

/// Finds tensors by number. A number that closely follows the previous one is found without going back to a restart.
class Seeker {
 public:
  /// `tensors` must outlive the object.
  explicit Seeker(const StoredTensors& tensors) : catalog_(tensors.catalog()) {}
  /// Valid until the next call. Throws std::out_of_range.
  const PackedCatalog::Cursor& at(std::uint32_t number);

 private:
  const PackedCatalog& catalog_;
  std::optional<PackedCatalog::Cursor> cursor_;
};

/// Files and the tensors in them.
struct PackedCheckpoint {
  std::vector<format::StoredFile> files;
  StoredTensors tensors;

  /// All tensors as objects, for callers that need all of them repeatedly.
  [[nodiscard]] format::StoredCheckpoint unpacked() const;
  [[nodiscard]] format::StoredCheckpoint files_alone() const { return {files, {}}; }
  /// The tensors with these numbers as objects, in that order, and all files.
  [[nodiscard]] format::StoredCheckpoint picked(std::span<const std::uint32_t> numbers) const;
};

/// Merges runs of packed catalogs. Nullopt if a name appears twice in a section. Requires: no tensor is in parts.
std::optional<base::Bytes> merge_runs(std::span<const base::Bytes> runs);

PackedCheckpoint packed(const format::StoredCheckpoint& stored);

}  // namespace cairn::plan
