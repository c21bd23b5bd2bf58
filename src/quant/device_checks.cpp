#include "quant/device_checks.hpp"

#include <fmt/core.h>

#include <array>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"

namespace cairn::quant {
namespace {

Error misuse(const Codec& codec, const std::string& what) {
  return {ErrorKind::kInternal, fmt::format("{} on a device: {}", codec.traits().name, what)};
}

}  // namespace

void require_parts(const Codec& codec, const Source& source, const Box& box, ConstDeviceParts parts,
                   std::uint64_t alignment) {
  const auto expected = codec.parts(source.shape);
  if (parts.size() != expected.size()) {
    throw misuse(codec, fmt::format("{} parts instead of {}", parts.size(), expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::uint64_t wanted = bytes_of(expected[i], codec.part_box(source.shape, i, box));
    if (parts[i].size != wanted) {
      throw misuse(codec, fmt::format("part {} of '{}' has {} bytes instead of {}", i, base::printable(source.name),
                                      parts[i].size, wanted));
    }
    const std::uint64_t unit = expected[i].role == Role::kScales ? sizeof(float) : alignment;
    if (reinterpret_cast<std::uintptr_t>(parts[i].data) % unit != 0) {
      throw misuse(codec, fmt::format("part {} of '{}' is not at a multiple of {} bytes", i,
                                      base::printable(source.name), unit));
    }
  }
}

RefusedValues fetch_values(const ConstDeviceMoments& moments, std::uint64_t index, const gpu::Stream& stream) {
  std::array<float, 2> values{};
  const auto bytes = std::as_writable_bytes(std::span(values));
  stream.copy(bytes.first(sizeof(float)), {reinterpret_cast<const std::byte*>(moments.m + index), sizeof(float)});
  stream.copy(bytes.last(sizeof(float)), {reinterpret_cast<const std::byte*>(moments.v + index), sizeof(float)});
  stream.synchronise();
  return {values[0], values[1]};
}

}  // namespace cairn::quant
