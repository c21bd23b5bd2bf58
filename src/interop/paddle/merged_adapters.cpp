#include "interop/paddle/merged_adapters.hpp"

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "quant/cast.hpp"

namespace cairn::interop {
namespace {

constexpr std::uint64_t kMostBytes = 256 << 20;  // limit for a weight: adapters are small, and compared in memory

std::vector<std::uint16_t> elements_of(const base::ByteSource& source, const PickledTensor& tensor) {
  std::vector<std::uint16_t> out(tensor.size_bytes / sizeof out[0]);
  source.read(std::as_writable_bytes(std::span(out)), tensor.offset_bytes);
  return out;
}

/// Requires: the tensor is F32.
std::vector<std::uint16_t> rounded_to_bf16(const base::ByteSource& source, const PickledTensor& tensor) {
  std::vector<float> values(tensor.size_bytes / sizeof(float));
  source.read(std::as_writable_bytes(std::span(values)), tensor.offset_bytes);
  std::vector<std::uint16_t> out(values.size());
  quant::cast_values(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16,
                     std::as_writable_bytes(std::span(out)));
  return out;
}

/// Whether the slices of all ranks together make up the weight, in which they alternate `blocks` times.
bool are_weight(const std::vector<std::uint16_t>& weight, const std::vector<std::vector<std::uint16_t>>& slices,
                std::uint64_t blocks) {
  if (weight.empty()) return true;
  const std::uint64_t length = weight.size() / blocks / slices.size();
  for (std::size_t rank = 0; rank < slices.size(); ++rank) {
    if (slices[rank].size() != length * blocks) return false;
    for (std::uint64_t block = 0; block < blocks; ++block) {
      const auto slice = std::span(slices[rank]).subspan(block * length, length);
      if (!std::ranges::equal(slice, std::span(weight).subspan((block * slices.size() + rank) * length, length))) {
        return false;
      }
    }
  }
  return true;
}

bool is_bf16(DType dtype) { return dtype == DType::kU16 || dtype == DType::kBF16; }

}  // namespace

std::optional<StaticNames> names_of_merged(const PickledFile& weights, std::span<const PickledFile> masters,
                                           const ModelFacts& facts, Reading& reading) {
  const auto is_outlined = [&](const PickledFile& file) { return reading.directory().outlined.contains(file.name); };
  if (is_outlined(weights) || std::ranges::any_of(masters, is_outlined)) return std::nullopt;
  const auto ranks = static_cast<std::uint32_t>(masters.size());
  const base::ByteSource source = reading.open(weights.name);
  std::vector<base::ByteSource> sources;
  for (const PickledFile& file : masters) {
    sources.push_back(reading.open(file.name));
    if (file.tensors.size() != weights.tensors.size()) return std::nullopt;
  }
  StaticNames out;
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    const PickledTensor& weight = weights.tensors[i];
    const PickledTensor& first = masters.front().tensors[i];
    if (!is_bf16(weight.dtype) || weight.size_bytes > kMostBytes) return std::nullopt;
    const TensorCut cut = cut_of(weight.key, first.shape, ranks, facts, [] { return Copies::kUniform; });
    if (!cut.unknown.empty() || cut.fused.size() != 1) return std::nullopt;
    std::vector<std::uint64_t> whole = first.shape;
    if (cut.is_cut) whole[cut.dimension] = base::mul(whole[cut.dimension], ranks, "rows of slices");
    if (whole != weight.shape) return std::nullopt;
    if (!out.try_emplace(first.key, std::vector{weight.key}).second) return std::nullopt;
    const std::vector<std::uint16_t> elements = elements_of(source, weight);
    std::vector<std::vector<std::uint16_t>> slices;  // rounded
    for (std::size_t rank = 0; rank < masters.size(); ++rank) {
      const PickledTensor& slice = masters[rank].tensors[i];
      if (slice.dtype != DType::kF32 || slice.key != first.key || slice.shape != first.shape) return std::nullopt;
      slices.push_back(rounded_to_bf16(sources[rank], slice));
      if (cut.is_cut) continue;
      if (!are_weight(elements, slices, 1)) return std::nullopt;
      slices.clear();
    }
    if (!cut.is_cut) continue;
    const auto blocks = base::try_product(std::span(whole).first(cut.dimension));
    if (!blocks || !are_weight(elements, slices, *blocks)) return std::nullopt;
  }
  return out;
}

}  // namespace cairn::interop
