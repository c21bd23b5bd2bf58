// How a data file says that tensors of it are codes of others: an entry of its `__metadata__` for each pair of moments.
//
// Key: "cairn.coding/" and the name of the pair's first stored tensor; value: a JSON object. FORMAT.md has the fields, and
// src/quant/README.md what the stored tensors hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::format {

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

/// Throws Error(kFormat) naming `context` (the file and the key): not JSON, a field that is missing, mistyped or unknown.
Coding parse_coding(std::string_view text, std::string_view context);

}  // namespace cairn::format
