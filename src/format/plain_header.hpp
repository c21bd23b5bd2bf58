// The content of a header's text before it is checked, and the fast parser for headers as programs write them. For
// safetensors_parse.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/dtype.hpp"
#include "format/safetensors.hpp"

namespace cairn::format {

class HeaderText {
 public:
  struct Offsets {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  std::map<std::string, std::string> metadata;

  void reserve(std::size_t tensors, std::size_t name_bytes);
  void add(std::string_view name, DType dtype, std::span<const std::uint64_t> shape, Offsets offsets);
  /// Sets the tensors (in the order of the text, with duplicates) and the metadata.
  void give_to(SafetensorsHeader& header) &&;

 private:
  struct Tensor {
    std::size_t name_bytes = 0;
    std::size_t dimensions = 0;
    DType dtype = DType::kF32;
    Offsets offsets;
  };
  HeaderStore store_;
  std::vector<Tensor> tensors_;
};

/// Reads a header; returns nothing for JSON that is not plain (plain_json.hpp), has unknown, missing or repeated keys,
/// or continues after the header: the strict parser then decides. Names of tensors may be repeated. Requires UTF-8.
std::optional<HeaderText> read_plain_header(std::string_view json);

}  // namespace cairn::format
