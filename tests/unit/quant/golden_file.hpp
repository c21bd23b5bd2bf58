// Tensors of safetensors files, and bitwise comparisons that fail if there is nothing to compare.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/dtype.hpp"
#include "expect_error.hpp"
#include "quant/codec.hpp"

namespace cairn::quant::test {

using cairn::test::expect_error;

struct GoldenTensor {
  DType dtype = DType::kF32;
  Shape shape;
  base::Bytes bytes;
};
using GoldenTensors = std::map<std::string, GoldenTensor>;

/// Every tensor of a safetensors file.
GoldenTensors read_tensors(const std::filesystem::path& path);

/// The values of an F32 tensor; throws std::out_of_range if there is no such tensor, std::runtime_error for a
/// different dtype.
std::vector<float> floats(const GoldenTensors& tensors, const std::string& name);

std::vector<float> as_floats(std::span<const std::byte> bytes);

/// A copy of a parameter's m and v.
struct State {
  std::vector<float> m;
  std::vector<float> v;

  explicit State(std::size_t elements) : m(elements), v(elements) {}
  State(std::vector<float> first, std::vector<float> second) : m(std::move(first)), v(std::move(second)) {}
  [[nodiscard]] ConstMoments view() const { return {m, v}; }
  Moments out() { return {m, v}; }
};

/// Decodes a whole tensor.
State decoded(const Codec& codec, const Source& source, const Encoded& encoded, Division division);

/// Success if all pairs of floats have the same bits or are both NaN. Fails if there are no floats.
testing::AssertionResult same_floats(std::span<const float> found, std::span<const float> expected);

/// Success if a part has the dtype, shape and bytes of a stored tensor; NaN scales equal NaN scales.
testing::AssertionResult same_part(const Part& part, const base::Bytes& bytes, const GoldenTensor& stored);

/// Like same_part(), for quant/own.safetensors, but blocks 7 and 9 of q4 must not both match. The stored blocks 7 and 9
/// have denormal v and are from an encoder that raised the largest v: they can be decoded, but are no longer written.
testing::AssertionResult same_own_codes(const Codec& codec, const Part& part, base::Bytes bytes,
                                        const GoldenTensor& stored);

}  // namespace cairn::quant::test
