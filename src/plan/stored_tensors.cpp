#include "plan/stored_tensors.hpp"

#include <stdexcept>

namespace cairn::plan {
namespace {

constexpr std::uint32_t kNear = 64;

std::vector<CatalogKey> keys_of(std::span<const format::PlacedTensor> tensors) {
  std::vector<CatalogKey> keys;
  keys.reserve(tensors.size());
  for (const format::PlacedTensor& tensor : tensors) keys.push_back({tensor.section, tensor.name});
  return keys;
}

PackedCatalog pack(std::span<const format::PlacedTensor> tensors) {
  CatalogPacker packer;
  for (const std::uint32_t number : catalog_order(keys_of(tensors))) packer.add(tensors[number]);
  const base::Bytes run = packer.take();
  return PackedCatalog({&run, 1});
}

/// Whether a single box, without gaps, holds the whole tensor.
bool is_whole(const format::StoredTensor& tensor) {
  if (tensor.boxes.size() != 1 || tensor.boxes[0].box.shape != tensor.shape) return false;
  if (tensor.boxes[0].row_elems != 0) return false;
  for (const std::uint64_t offset : tensor.boxes[0].box.offset) {
    if (offset != 0) return false;
  }
  return true;
}

format::PlacedTensor placed(const format::StoredTensor& tensor) {
  format::PlacedTensor out{tensor.section, tensor.name, tensor.dtype, tensor.shape};
  if (is_whole(tensor)) {
    out.file = tensor.boxes[0].file;
    out.offset_bytes = tensor.boxes[0].offset_bytes;
  } else {
    out.in_parts = true;
    out.boxes = tensor.boxes;
  }
  return out;
}

std::vector<format::PlacedTensor> placed(const std::vector<format::StoredTensor>& tensors) {
  std::vector<format::PlacedTensor> out;
  out.reserve(tensors.size());
  for (const format::StoredTensor& tensor : tensors) out.push_back(placed(tensor));
  return out;
}

}  // namespace

StoredTensors::StoredTensors(std::span<const format::PlacedTensor> tensors) : catalog_(pack(tensors)) {}
StoredTensors::StoredTensors(const std::vector<format::StoredTensor>& tensors) : catalog_(pack(placed(tensors))) {}

format::StoredTensor StoredTensors::at(std::size_t number) const {
  if (number >= size()) throw std::out_of_range("number of a stored tensor");
  return (*this)[number];
}

const PackedCatalog::Cursor& Seeker::at(std::uint32_t number) {
  if (number >= catalog_.size()) throw std::out_of_range("number of a stored tensor");
  if (!cursor_ || number < cursor_->number() || number - cursor_->number() > kNear) {
    cursor_.emplace(catalog_, number);
    cursor_->next();
  }
  while (cursor_->number() != number) cursor_->next();
  return *cursor_;
}

format::StoredCheckpoint PackedCheckpoint::unpacked() const {
  format::StoredCheckpoint out{files, {}};
  out.tensors.reserve(tensors.size());
  for (auto cursor = tensors.cursor(); cursor.next();) out.tensors.push_back(cursor.stored());
  return out;
}

format::StoredCheckpoint PackedCheckpoint::picked(std::span<const std::uint32_t> numbers) const {
  format::StoredCheckpoint out{files, {}};
  out.tensors.reserve(numbers.size());
  Seeker seeker(tensors);
  for (const std::uint32_t number : numbers) out.tensors.push_back(seeker.at(number).stored());
  return out;
}

std::optional<base::Bytes> merge_runs(std::span<const base::Bytes> runs) {
  std::vector<PackedCatalog> catalogs;
  std::size_t name_bytes = 0;
  std::size_t dimensions = 0;
  std::size_t tensors = 0;
  for (const base::Bytes& run : runs) {
    if (run.empty()) continue;
    catalogs.emplace_back(std::span(&run, 1));
    for (PackedCatalog::Cursor cursor(catalogs.back(), 0); cursor.next(); ++tensors) {
      name_bytes += cursor.name().size();
      dimensions += cursor.shape().size();
    }
  }
  std::string names;
  names.reserve(name_bytes);
  std::vector<std::uint64_t> sizes;
  sizes.reserve(dimensions);
  std::vector<format::PlacedTensor> all;
  all.reserve(tensors);
  for (const PackedCatalog& catalog : catalogs) {
    for (PackedCatalog::Cursor cursor(catalog, 0); cursor.next();) {
      format::PlacedTensor tensor = cursor.placed();  // its section is a view into the catalog
      const std::size_t name = names.size();
      const std::size_t shape = sizes.size();
      names += tensor.name;
      sizes.insert(sizes.end(), tensor.shape.begin(), tensor.shape.end());
      tensor.name = std::string_view(names).substr(name);
      tensor.shape = std::span(sizes).subspan(shape);
      all.push_back(tensor);
    }
  }
  CatalogPacker packer;
  const format::PlacedTensor* last = nullptr;
  for (const std::uint32_t number : catalog_order(keys_of(all))) {
    const format::PlacedTensor& tensor = all[number];
    if (last != nullptr && last->name == tensor.name && last->section == tensor.section) return std::nullopt;
    last = &tensor;
    packer.add(tensor);
  }
  return packer.take();
}

PackedCheckpoint packed(const format::StoredCheckpoint& stored) { return {stored.files, stored.tensors}; }

}  // namespace cairn::plan
