// Random states, options and extras with unusual names, sizes and values, the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace cairn::test {

struct OddTensor {
  Tensor tensor;
  std::string section;
  std::vector<std::byte> content;
  std::uint64_t owner = 0;  ///< the rank that holds a tensor that cannot be cut; the number of ranks: all hold it
};

struct OddCase {
  Options options;
  std::vector<OddTensor> tensors;
  Extras extras;                             ///< extras of this rank
  std::map<std::string, std::string> files;  ///< to create and carry
  bool is_async = false;
  bool has_gaps = false;  ///< between the elements in memory
  std::string text;       ///< for messages
};

OddCase odd_case(std::mt19937_64& random, std::uint64_t ranks, std::uint64_t rank);

/// The boxes that a rank holds of a tensor: rows, the whole tensor, or nothing.
std::vector<Box> boxes_of(const OddTensor& odd_tensor, std::uint64_t rank, std::uint64_t ranks);

/// The bytes of `boxes` of a tensor.
std::vector<std::byte> content_of(const OddTensor& odd_tensor, const std::vector<Box>& boxes);

}  // namespace cairn::test
