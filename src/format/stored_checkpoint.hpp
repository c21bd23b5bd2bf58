// The content of a directory: tensors as boxes of bytes in files, whatever dialect wrote them.
//
// Readers of every dialect produce this description, and so does the file layout of a save; the planner needs nothing
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
  std::uint64_t offset_bytes = 0;  ///< offset of the first element, from the start of the file
  Box box;                         ///< the tensor's elements that are stored here, row-major from offset_bytes on
  /// Elements in the file from the start of one row (of the last dimension) to the start of the next; 0: the box is
  /// contiguous. More than the box's row length if the box is some columns of longer rows.
  std::uint64_t row_elems = 0;
};

/// Elements in the file from the start of one row of the box to the start of the next.
inline std::uint64_t stored_row_elems(const StoredBox& stored) {
  return stored.row_elems != 0 || stored.box.shape.empty() ? stored.row_elems : stored.box.shape.back();
}

struct StoredTensor {
  std::string section;  ///< "model", "optimizer", "master_weights", "adapter" or a name from the user
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< global, in elements
  std::vector<StoredBox> boxes;      ///< disjoint; together they cover the tensor
};

/// A tensor as views of another object, for loops over a checkpoint's tensors, of which there may be over 100,000.
struct PlacedTensor {
  std::string_view section;
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::uint64_t> shape;
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;  ///< offset of the whole tensor in the file, as in StoredBox
  bool in_parts = false;           ///< not stored whole in one file: `boxes` are used instead
  std::span<const StoredBox> boxes = {};
};

/// A copy that owns its data.
StoredTensor stored_tensor(const PlacedTensor& tensor);

struct StoredCheckpoint {
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
};

// Coded tensors: a data file's `__metadata__` has an entry for each pair of moments that it stores as codes.
//
// Key: "cairn.coding/" and the name of the pair's first stored tensor; value: a JSON object. FORMAT.md has the fields;
// src/quant/README.md describes the stored tensors.

inline constexpr std::string_view kCodingKey = "cairn.coding/";

/// Both moments of a parameter, as stored by one codec.
struct Coding {
  std::string codec;  ///< "q8"
  std::string first;  ///< names of the decoded moments
  std::string second;
  std::vector<std::uint64_t> shape;  ///< shape of both moments

  friend bool operator==(const Coding&, const Coding&) = default;
};

/// The value of the entry as compact JSON with sorted keys.
std::string encode_coding(const Coding& coding);

/// Throws Error(kFormat) naming `context` (the file and the key): not JSON, or a missing, mistyped or unknown field.
Coding parse_coding(std::string_view text, std::string_view context);

}  // namespace cairn::format
