#include "plan/strides.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"

namespace cairn::plan {
namespace {

bool is_empty(std::span<const std::uint64_t> shape) { return std::ranges::find(shape, 0U) != shape.end(); }

/// The span of `count` repetitions, `stride` apart, of inner dimensions with the given span; nullopt if it does not fit
/// in 64 bits.
std::optional<std::uint64_t> repeated(std::uint64_t span, std::uint64_t count, std::uint64_t stride) {
  const auto more = base::try_mul(count - 1, stride);
  return more ? base::try_add(span, *more) : std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> span_elements(std::span<const std::uint64_t> shape,
                                           std::span<const std::uint64_t> strides) {
  if (is_empty(shape)) return 0;
  std::optional<std::uint64_t> span = 1;
  for (std::size_t d = shape.size(); d-- > 0 && span;) {
    span = repeated(*span, shape[d], strides.empty() ? *span : strides[d]);
  }
  return span;
}

std::string stride_problem(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides) {
  if (strides.empty()) return "";
  if (strides.size() != shape.size()) {
    return fmt::format("{} strides for {} dimensions", strides.size(), shape.size());
  }
  if (is_empty(shape)) return "";
  std::uint64_t span = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    if (span == 1 && strides[d] != 1) {
      return fmt::format(
          "dimension {} has stride {}; it is the innermost one with more than one element, whose stride is 1", d,
          strides[d]);
    }
    if (strides[d] < span) {
      return fmt::format("dimension {} has stride {}, less than the {} elements that the dimensions inside it span", d,
                         strides[d], span);
    }
    const auto next = repeated(span, shape[d], strides[d]);
    if (!next) return fmt::format("dimension {} has stride {}, and ends beyond 2^64 elements", d, strides[d]);
    span = *next;
  }
  return "";
}

bool is_dense(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides) {
  return strides.empty() || span_elements(shape, strides) == span_elements(shape, {});
}

}  // namespace cairn::plan
