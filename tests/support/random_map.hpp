// Random maps of tensors with splits, joins and permutations, and the bytes of their targets, element by element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "plan/tensor_map.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"

namespace cairn::test {

inline bool may_be_cut(const plan::CatalogTensor& tensor) {
  return bits_of(tensor.dtype) >= 8 && shard::elements_of(tensor.shape) != 0;
}

/// Fills `box` of a target that has the dtype and rank of `like`, with pieces of any sources that have the same dtype
/// and rank.
inline void fill_randomly(std::mt19937_64& random, const plan::Catalog& sources, const plan::CatalogTensor& like,
                          const Box& box, std::vector<plan::MapPiece>& out) {
  std::vector<std::uint32_t> alike;
  for (std::uint32_t i = 0; i < sources.tensors.size(); ++i) {
    const plan::CatalogTensor& source = sources.tensors[i];
    if (source.dtype == like.dtype && source.shape.size() == like.shape.size() && may_be_cut(source))
      alike.push_back(i);
  }
  plan::MapPiece piece{alike[uniform(random, 0, alike.size() - 1)], {}, box.offset, {}};
  const auto& shape = sources.tensors[piece.source].shape;
  piece.order.resize(shape.size());
  std::iota(piece.order.begin(), piece.order.end(), 0U);
  if (uniform(random, 0, 2) != 0) std::shuffle(piece.order.begin(), piece.order.end(), random);
  bool fits = true;
  for (std::size_t d = 0; d < shape.size(); ++d) fits = fits && box.shape[d] <= shape[piece.order[d]];
  if (fits && (uniform(random, 0, 2) != 0 || shard::elements_of(box) == 1)) {
    piece.box = shard::whole(shape);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      piece.box.offset[piece.order[d]] = uniform(random, 0, shape[piece.order[d]] - box.shape[d]);
      piece.box.shape[piece.order[d]] = box.shape[d];
    }
    out.push_back(std::move(piece));
    return;
  }
  std::size_t d = 0;
  do d = uniform(random, 0, shape.size() - 1);
  while (box.shape[d] == 1);
  const std::uint64_t cut = uniform(random, 1, box.shape[d] - 1);
  Box before = box;
  Box after = box;
  before.shape[d] = cut;
  after.offset[d] += cut;
  after.shape[d] -= cut;
  fill_randomly(random, sources, like, before, out);
  fill_randomly(random, sources, like, after, out);
}

/// One to three targets for each source, in its section.
inline plan::TensorMap random_map(std::mt19937_64& random, const plan::Catalog& sources) {
  plan::TensorMap map;
  for (std::uint32_t i = 0; i < sources.tensors.size(); ++i) {
    const plan::CatalogTensor& source = sources.tensors[i];
    for (std::uint64_t n = uniform(random, 0, 2); n < 3; ++n) {
      plan::CatalogTensor target{source.section,
                                 std::to_string(uniform(random, 0, 999'999'999)) + source.name,
                                 source.dtype,
                                 source.shape,
                                 {}};
      const auto number = static_cast<std::uint32_t>(map.sources.size());
      const std::uint64_t kind = may_be_cut(source) ? uniform(random, 0, 3) : 0;
      if (kind == 1) {
        map.pieces[number] = {plan::reversed(i, source.shape)};
        std::ranges::reverse(target.shape);
      } else if (kind > 1) {
        for (std::uint64_t& size : target.shape) size = uniform(random, 1, size + 3);
        fill_randomly(random, sources, source, shard::whole(target.shape), map.pieces[number]);
      }
      map.catalog.tensors.push_back(std::move(target));
      map.sources.push_back(i);
    }
  }
  return plan::in_catalog_order(std::move(map));
}

/// The bytes of a target, copied element by element.
inline base::Bytes made_by(const plan::TensorMap& map, std::uint32_t number, const plan::Catalog& sources,
                           std::span<const base::Bytes> bytes) {
  if (!map.pieces.contains(number)) return bytes[map.sources[number]];
  const plan::CatalogTensor& target = map.catalog.tensors[number];
  const std::size_t width = bits_of(target.dtype) / 8;
  base::Bytes out(shard::elements_of(target.shape) * width);
  for (const plan::MapPiece& piece : map.pieces.at(number)) {
    for (std::uint64_t n = 0; n < shard::elements_of(piece.box); ++n) {
      std::uint64_t rest = n;
      std::vector<std::uint64_t> from = piece.box.offset;
      for (std::size_t d = from.size(); d-- > 0; rest /= piece.box.shape[d]) from[d] += rest % piece.box.shape[d];
      std::vector<std::uint64_t> to = piece.at;
      for (std::size_t d = 0; d < to.size(); ++d) to[d] += from[piece.order[d]] - piece.box.offset[piece.order[d]];
      std::memcpy(out.data() + shard::flat_index(target.shape, to) * width,
                  bytes[piece.source].data() + shard::flat_index(sources.tensors[piece.source].shape, from) * width,
                  width);
    }
  }
  return out;
}

}  // namespace cairn::test
