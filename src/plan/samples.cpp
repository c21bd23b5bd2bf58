#include "plan/samples.hpp"

#include "base/mix.hpp"
#include "plan/strides.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {

std::uint64_t own_bytes(const MemoryBox& box) {
  if (box.strides.empty() || box.bytes.empty()) return box.bytes.size();
  return box.bytes.size() / span_elements(box.box.shape, box.strides).value() * shard::elements_of(box.box);
}

std::uint64_t sample_seed(std::uint64_t save, std::uint64_t tensor, const Box& box) {
  std::uint64_t seed = base::split_mix64(base::split_mix64(save) ^ tensor);
  for (const std::uint64_t offset : box.offset) seed = base::split_mix64(seed ^ offset);
  for (const std::uint64_t size : box.shape) seed = base::split_mix64(seed ^ size);
  return seed;
}

SampleRule rule_of_places(std::uint64_t places) {
  const SampleRule usual;
  return places >= usual.places ? usual : SampleRule{places * kPlaceBytes, places};
}

SampleRule sample_rule(std::span<const std::uint64_t> box_bytes) {
  const SampleRule usual;
  std::uint64_t all = 0;
  std::uint64_t sampled = 0;
  for (const std::uint64_t bytes : box_bytes) {
    all += bytes;
    sampled += bytes <= usual.whole_bytes ? bytes : usual.places * kPlaceBytes;
  }
  const std::uint64_t most = std::max(kSampledBytes, all / 64);
  if (sampled <= most) return usual;
  return rule_of_places(std::clamp<std::uint64_t>(most / kPlaceBytes / box_bytes.size(), 1, usual.places - 1));
}

Sample Sample::of(std::uint64_t box_bytes, std::uint64_t seed, const SampleRule& rule) {
  if (box_bytes <= rule.whole_bytes) return all(box_bytes);
  const std::uint64_t lines = (box_bytes - 1) / kPlaceBytes + 1;
  // First line (of kPlaceBytes) of part p, without a product that could overflow.
  const auto begin_of = [&](std::uint64_t p) {
    return lines / rule.places * p + lines % rule.places * p / rule.places;
  };
  std::vector<std::uint64_t> places(rule.places);
  for (std::uint64_t p = 0; p < rule.places; ++p) {
    seed = base::split_mix64(seed);
    places[p] = (begin_of(p) + seed % (begin_of(p + 1) - begin_of(p))) * kPlaceBytes;
  }
  return {box_bytes, std::move(places)};
}

std::uint64_t Sample::size() const {
  return places_.empty() ? box_bytes_ / kCompareBytes + (box_bytes_ % kCompareBytes == 0 ? 0 : 1) : places_.size();
}

ByteRange Sample::operator[](std::uint64_t i) const {
  const std::uint64_t begin = places_.empty() ? i * kCompareBytes : places_[i];
  const std::uint64_t bytes = places_.empty() ? kCompareBytes : kPlaceBytes;
  return {begin, begin + std::min(bytes, box_bytes_ - begin)};
}

RowsInMemory::RowsInMemory(const MemoryBox& box) {
  const auto& shape = box.box.shape;
  const std::uint64_t element_bytes = box.bytes.size() / span_elements(shape, box.strides).value();
  row_bytes = element_bytes;
  std::size_t inner = shape.size();
  while (inner > 0 && (shape[inner - 1] == 1 || box.strides[inner - 1] * element_bytes == row_bytes)) {
    row_bytes *= shape[--inner];
  }
  for (std::size_t d = 0; d < inner; ++d) {
    counts.push_back(shape[d]);
    strides.push_back(box.strides[d] * element_bytes);
  }
}

std::pair<std::uint64_t, std::uint64_t> RowsInMemory::find(std::uint64_t at) const {
  std::uint64_t row = at / row_bytes;
  std::uint64_t offset = at % row_bytes;
  const std::uint64_t follow = row_bytes - offset;
  for (std::size_t d = counts.size(); d-- > 0;) {
    offset += row % counts[d] * strides[d];
    row /= counts[d];
  }
  return {offset, follow};
}

}  // namespace cairn::plan
