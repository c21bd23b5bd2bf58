#include "layouts.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "shard/box_math.hpp"

namespace cairn::plan_test {
namespace {

/// Ascending cut points of [0, size), with both ends.
std::vector<std::uint64_t> random_cuts(Seeded& random, std::uint64_t size) {
  std::set<std::uint64_t> cuts = {0, size};
  for (std::uint64_t i = random.between(0, 3); i > 0; --i) cuts.insert(random.between(0, size));
  return {cuts.begin(), cuts.end()};
}

std::vector<Box> grid(Seeded& random, const std::vector<std::uint64_t>& shape) {
  std::vector<Box> boxes = {{}};
  for (const std::uint64_t size : shape) {
    const auto cuts = random_cuts(random, size);
    std::vector<Box> next;
    for (const Box& box : boxes) {
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        Box longer = box;
        longer.offset.push_back(cuts[i]);
        longer.shape.push_back(cuts[i + 1] - cuts[i]);
        next.push_back(std::move(longer));
      }
    }
    boxes = std::move(next);
  }
  return boxes;
}

/// Cuts random boxes in two at random planes, so that the boxes need not form a grid.
std::vector<Box> splintered(Seeded& random, const std::vector<std::uint64_t>& shape) {
  std::vector<Box> boxes = {shard::whole(shape)};
  for (std::uint64_t i = random.between(0, 12); i > 0 && !shape.empty(); --i) {
    Box& box = boxes[random.between(0, boxes.size() - 1)];
    const std::size_t d = random.between(0, shape.size() - 1);
    if (box.shape[d] < 2) continue;
    const std::uint64_t at = random.between(1, box.shape[d] - 1);
    Box upper = box;
    upper.offset[d] += at;
    upper.shape[d] -= at;
    box.shape[d] = at;
    boxes.push_back(std::move(upper));
  }
  return boxes;
}

std::vector<Box> flat(Seeded& random, const std::vector<std::uint64_t>& shape) {
  const auto cuts = random_cuts(random, shard::elements_of(shape));
  std::vector<Box> boxes;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (Box& box : shard::boxes_of_flat_range(shape, cuts[i], cuts[i + 1])) boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace

std::vector<std::uint64_t> random_shape(Seeded& random, std::uint64_t max_rank, std::uint64_t max_size) {
  std::vector<std::uint64_t> shape(random.between(0, max_rank));
  for (auto& size : shape) size = random.one_in(60) ? 0 : random.between(1, max_size);
  return shape;
}

std::vector<Box> random_partition(Seeded& random, const std::vector<std::uint64_t>& shape) {
  switch (random.between(0, 2)) {
    case 0: return grid(random, shape);
    case 1: return splintered(random, shape);
    default: return flat(random, shape);
  }
}

std::vector<plan::Piece> random_claims(Seeded& random, const std::vector<std::uint64_t>& shape, int ranks) {
  std::vector<Box> boxes;
  if (!shard::is_empty(shard::whole(shape))) boxes = random_partition(random, shape);
  std::map<int, std::uint32_t> next_local;
  std::vector<plan::Piece> claims;
  const auto give = [&](int rank, const Box& box) { claims.push_back({0, next_local[rank]++, rank, box}); };
  const auto any_rank = [&] { return static_cast<int>(random.between(0, static_cast<std::uint64_t>(ranks) - 1)); };
  const std::uint64_t most_replicas = random.one_in(3) ? static_cast<std::uint64_t>(ranks) : 1;
  for (const Box& box : boxes) {
    for (std::uint64_t i = random.between(1, most_replicas); i > 0; --i) give(any_rank(), box);
  }
  for (std::uint64_t i = random.between(0, 3); i > 0 && !shape.empty(); --i) {
    Box empty = shard::whole(shape);
    empty.offset[0] = shape[0];
    empty.shape[0] = 0;
    give(any_rank(), empty);
  }
  return claims;
}

}  // namespace cairn::plan_test
