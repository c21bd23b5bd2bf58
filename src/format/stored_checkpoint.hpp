// What a directory holds: tensors as boxes of bytes in files, whatever dialect wrote them.
//
// Readers of every dialect produce this, the file layout of a save produces it too, and the planner needs nothing
// else. A plain safetensors tensor is one box that covers it; a sharded dialect has several.
#pragma once

#include <cstdint>
#include <string>
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
  Box box;                         ///< which elements; they lie row-major and contiguous from offset_bytes
};

struct StoredTensor {
  std::string section;  ///< "model", "optimizer", "master_weights", "adapter" or a name of the user's
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< global, in elements
  std::vector<StoredBox> boxes;      ///< disjoint; together they cover the tensor
};

struct StoredCheckpoint {
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
};

}  // namespace cairn::format
