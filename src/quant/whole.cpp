// The three steps of codec.hpp on the box that is the whole tensor.
#include "quant/whole.hpp"

#include "quant/boxes.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {

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

}  // namespace cairn::quant
