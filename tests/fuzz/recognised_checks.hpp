// Requirements on the description of a directory, whatever the directory holds.
#pragma once

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "format/stored_checkpoint.hpp"
#include "fuzz_checks.hpp"
#include "interop/directory.hpp"

namespace cairn::fuzz {

inline bool has_zero(std::span<const std::uint64_t> shape) { return std::ranges::find(shape, 0) != shape.end(); }

/// Requires that every box lies inside its tensor, and the bytes of the box inside the file.
inline void check_boxes(const interop::Recognised& recognised) {
  for (const format::PlacedTensor& placed : recognised.tensors) {
    const format::StoredTensor tensor = stored_tensor(placed);
    require(!tensor.boxes.empty(), "a tensor must have a box");
    for (const format::StoredBox& stored : tensor.boxes) {
      const auto& [offset, shape] = stored.box;
      require(offset.size() == tensor.shape.size() && shape.size() == tensor.shape.size(), "a box must have the rank");
      for (std::size_t d = 0; d < shape.size(); ++d) {
        require(offset[d] <= tensor.shape[d] && shape[d] <= tensor.shape[d] - offset[d],
                "a box must lie inside of its tensor");
      }
      if (has_zero(shape)) continue;
      std::uint64_t elements = 1;  // up to the end of the last row
      for (const std::uint64_t length : shape) elements *= length;
      if (!shape.empty()) {
        const std::uint64_t rows = elements / shape.back();
        elements = (rows - 1) * stored_row_elems(stored) + shape.back();
      }
      const auto bits = static_cast<unsigned __int128>(elements) * bits_of(placed.dtype);
      require(stored.offset_bytes + bits / 8 <= recognised.files.at(stored.file).size_bytes,
              "a tensor must lie in its file");
    }
  }
}

/// Requires that the boxes of each tensor together have the tensor's number of elements.
inline void check_volumes(const interop::Recognised& recognised) {
  for (const format::PlacedTensor& placed : recognised.tensors) {
    unsigned __int128 whole = 1;
    for (const std::uint64_t length : placed.shape) whole *= length;
    unsigned __int128 stored = 0;
    for (const format::StoredBox& box : stored_tensor(placed).boxes) {
      unsigned __int128 elements = 1;
      for (const std::uint64_t length : box.box.shape) elements *= length;
      stored += elements;
    }
    require(whole == stored, "the boxes of a tensor must have all of its elements");
  }
}

inline void check_lists(const interop::Recognised& recognised) {
  const auto key = [](const format::PlacedTensor& tensor) { return std::pair(tensor.section, tensor.name); };
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const format::PlacedTensor& tensor : recognised.tensors) {
    require(names.empty() || *names.rbegin() < key(tensor), "tensors must ascend");
    names.insert(key(tensor));
  }
  for (const interop::QuantisedMoments& moments : recognised.quantised) {
    require(!moments.parts.empty(), "codes must have parts");
    for (const std::string& part : moments.parts) {
      require(names.contains({moments.section, part}), "the parts of codes must be tensors");
    }
    for (const interop::ScaledBox& scaled : moments.boxes) {
      require(scaled.box.shape.size() == moments.shape.size(), "a coded box must have the rank");
    }
  }
  for (const std::string& warning : recognised.warnings) require_one_line(warning);
  for (const std::string& line : recognised.about.left) require_one_line(line);
}

}  // namespace cairn::fuzz
