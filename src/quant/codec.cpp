// The list of codecs, the merging of statistics, and the steps of a codec on a whole tensor.
#include "quant/codec.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "quant/own_codec.hpp"
#include "quant/paddle_codec.hpp"
#include "quant/paddle_math.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {

// Merging walks the rows of the box that both statistics cover; a row is contiguous in both.

namespace {

/// Moves `position` to the next row of the box, in row-major order; the last dimension stays.
void next_row(const Box& box, std::vector<std::uint64_t>& position) {
  for (std::size_t d = box.shape.size() - 1; d-- > 0;) {
    if (++position[d] < box.offset[d] + box.shape[d]) return;
    position[d] = box.offset[d];
  }
}

}  // namespace

void merge(Reduction reduction, std::span<float> into, std::span<const float> from) {
  if (into.size() != from.size()) throw base::internal_error("statistics of different sizes cannot be merged");
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = reduced(reduction, into[i], from[i]);
}

void merge(Statistics& into, const Statistics& from) {
  if (into.arrays.size() != from.arrays.size() || into.box.shape.size() != from.box.shape.size()) {
    throw base::internal_error("statistics of different codecs or tensors cannot be merged");
  }
  const auto common = shard::intersect(into.box, from.box);
  if (!common) return;
  const Box& both = *common;
  const std::uint64_t elements = shard::elements_of(both);
  const std::uint64_t length = both.shape.empty() ? 1 : both.shape.back();
  std::vector<std::uint64_t> position = both.offset;
  for (std::uint64_t row = 0; row < elements / length; ++row) {
    const std::size_t to = index_in(into, position, length);
    const std::size_t at = index_in(from, position, length);
    for (std::size_t i = 0; i < into.arrays.size(); ++i) {
      merge(into.arrays[i].reduction, std::span(into.arrays[i].values).subspan(to, length),
            std::span(from.arrays[i].values).subspan(at, length));
    }
    if (!both.shape.empty()) next_row(both, position);
  }
}

std::vector<std::uint64_t> reduction_keys(const Statistics& statistics) {
  std::vector<std::uint64_t> keys;
  for (const auto& array : statistics.arrays) {
    for (const float value : array.values) keys.push_back(key_of(array.reduction, value));
  }
  return keys;
}

void take_reduction_keys(std::span<const std::uint64_t> keys, Statistics& statistics) {
  std::size_t expected = 0;
  for (const auto& array : statistics.arrays) expected += array.values.size();
  if (keys.size() != expected) throw base::internal_error("reduced statistics have another size");
  auto key = keys.begin();
  for (auto& array : statistics.arrays) {
    for (float& value : array.values) value = value_of(array.reduction, static_cast<std::uint32_t>(*key++));
  }
}

std::size_t index_in(const Statistics& statistics, const std::vector<std::uint64_t>& position, std::uint64_t length) {
  const Box& box = statistics.box;
  bool covered = position.size() == box.shape.size();
  std::uint64_t index = 0;
  for (std::size_t d = 0; covered && d < position.size(); ++d) {
    const std::uint64_t count = d + 1 == position.size() ? length : 1;
    covered = position[d] >= box.offset[d] && position[d] - box.offset[d] <= box.shape[d] &&
              count <= box.shape[d] - (position[d] - box.offset[d]);
    index = index * box.shape[d] + (position[d] - box.offset[d]);
  }
  if (!covered) throw base::internal_error("statistics do not cover the box that is asked of them");
  return index;
}

std::string stored_name(const Part& part, const MomentNames& names) {
  return (part.moment == Moment::kFirst ? names.first : names.second) + part.suffix;
}

Encoded encode_box(const Codec& codec, const Source& source, const Box& box, const ConstMoments& moments,
                   const Statistics& statistics) {
  const auto parts = codec.parts(source.shape);
  Encoded encoded;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    encoded.emplace_back(bytes_of(parts[i], codec.part_box(source.shape, i, box)));
  }
  const std::vector<std::span<std::byte>> out(encoded.begin(), encoded.end());
  codec.encode(source, box, moments, statistics, out);
  return encoded;
}

Encoded encode_whole(const Codec& codec, const Source& source, const ConstMoments& moments) {
  const Box box = shard::whole(codec.view(source.shape));
  Statistics statistics = codec.no_statistics(source.shape, box);
  codec.measure(source, box, moments, statistics);
  return encode_box(codec, source, box, moments, statistics);
}

void decode_whole(const Codec& codec, const Source& source, const Encoded& encoded, const DecodeOptions& options,
                  const Moments& out) {
  const std::vector<std::span<const std::byte>> parts(encoded.begin(), encoded.end());
  codec.decode(source, shard::whole(codec.view(source.shape)), parts, options, out);
}

std::span<const Codec* const> all_codecs() {
  static const std::array codecs = {
      &own_q8(),
      &own_q4(),
      &paddle_o1(),
      &paddle_o2(),
  };
  return codecs;
}

const Codec& find_codec(std::string_view name) {
  const auto codecs = all_codecs();
  const auto found =
      std::find_if(codecs.begin(), codecs.end(), [&](const Codec* c) { return c->traits().name == name; });
  if (found != codecs.end()) return **found;
  std::vector<std::string> names;
  for (const Codec* codec : codecs) names.push_back(codec->traits().name);
  throw Error(ErrorKind::kUsage,
              fmt::format("no codec is called '{}'; there are: {}, off", base::printable(name), base::joined(names)));
}

}  // namespace cairn::quant
