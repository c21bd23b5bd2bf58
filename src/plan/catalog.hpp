// The catalog: every tensor of a checkpoint, section by section, in one canonical order.
//
// The order is a function of the set of tensors alone (never of ranks): sections model, optimizer, master_weights,
// adapter, then others by name; inside a section natural order of names (runs of digits compare as numbers, so that
// "layers.2" comes before "layers.10").
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/dtype.hpp"

namespace cairn::plan {

struct CatalogTensor {
  std::string section;
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::string coding = {};  ///< not empty: what the file's metadata says of it (format/stored_checkpoint.hpp)

  friend bool operator==(const CatalogTensor&, const CatalogTensor&) = default;
};

struct Catalog {
  std::vector<CatalogTensor> tensors;
};

std::strong_ordering natural_order(std::string_view a, std::string_view b);

/// Position of a section in files and listings; unknown sections come after the known ones.
std::strong_ordering section_order(std::string_view a, std::string_view b);

/// Whether a tensor stands before another one in a catalog.
bool in_catalog_order(std::string_view section_a, std::string_view name_a, std::string_view section_b,
                      std::string_view name_b);

using NumbersByName = std::map<std::pair<std::string_view, std::string_view>, std::uint32_t>;

/// Sections and names of anything that has both, which must outlive the map, with their numbers.
template <class Tensors>
NumbersByName numbers_by_name(const Tensors& tensors) {
  NumbersByName numbers;
  std::uint32_t number = 0;
  for (const auto& tensor : tensors) numbers[{tensor.section, tensor.name}] = number++;
  return numbers;
}

/// Sorts into catalog order. Throws Error(kState) when a (section, name) appears twice.
Catalog make_catalog(std::vector<CatalogTensor> tensors);

}  // namespace cairn::plan
