// What a directory holds: tensors as boxes of bytes in files, whatever dialect wrote them.
//
// Readers of every dialect produce this, the file layout of a save produces it too, and the planner needs nothing
// else. A plain safetensors tensor is one box that covers it; a sharded dialect has several.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"

namespace cairn::format {

struct StoredFile {
  std::string name;              ///< relative to the checkpoint directory, '/'-separated, never absolute, no ".."
  std::uint64_t size_bytes = 0;  ///< whole file, header included
};

struct StoredBox {
  std::uint32_t file = 0;          ///< index into StoredCheckpoint::files
  std::uint64_t offset_bytes = 0;  ///< of the first element, from the start of the file
  Box box;                         ///< which elements; they lie row-major from offset_bytes
  /// Elements from one row (of the last dimension) to the next in the file; 0: as many as the box has, so that it is
  /// contiguous. Columns of a longer row are a box, too.
  std::uint64_t row_elems = 0;
};

/// Elements from one row of the box to the next in the file.
inline std::uint64_t stored_row_elems(const StoredBox& stored) {
  return stored.row_elems != 0 || stored.box.shape.empty() ? stored.row_elems : stored.box.shape.back();
}

struct StoredTensor {
  std::string section;  ///< "model", "optimizer", "master_weights", "adapter" or a name of the user's
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< global, in elements
  std::vector<StoredBox> boxes;      ///< disjoint; together they cover the tensor
};

/// The same as views, for who goes through all tensors of a checkpoint: it may have 100,000 and more. What they lead to is
/// another's.
struct PlacedTensor {
  std::string_view section;
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::uint64_t> shape;
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;         ///< of the whole tensor in the file, as in StoredBox
  bool in_parts = false;                  ///< it is not whole in one file:
  std::span<const StoredBox> boxes = {};  ///< these are its boxes instead
};

/// The tensor as an object of its own.
StoredTensor stored_tensor(const PlacedTensor& tensor);

struct StoredCheckpoint {
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
};

// How a data file says that tensors of it are codes of others: an entry of its `__metadata__` for each pair of moments.
//
// Key: "cairn.coding/" and the name of the pair's first stored tensor; value: a JSON object. FORMAT.md has the fields,
// and src/quant/README.md what the stored tensors hold.

inline constexpr std::string_view kCodingKey = "cairn.coding/";

/// Both moments of a parameter, as one codec stores them.
struct Coding {
  std::string codec;  ///< "q8"
  std::string first;  ///< the moments' names when decoded
  std::string second;
  std::vector<std::uint64_t> shape;  ///< of both moments

  friend bool operator==(const Coding&, const Coding&) = default;
};

/// The value of the entry: compact JSON, keys sorted.
std::string encode_coding(const Coding& coding);

/// Throws Error(kFormat) naming `context` (the file and the key): not JSON, a field that is missing, mistyped or
/// unknown.
Coding parse_coding(std::string_view text, std::string_view context);

}  // namespace cairn::format
