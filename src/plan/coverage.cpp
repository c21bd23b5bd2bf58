// Coverage: claims become groups of replicas, the groups must tile the tensor.
#include "plan/coverage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "plan/runs.hpp"
#include "plan/tiling.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

Error state_error(const CatalogTensor& tensor, const std::string& what) {
  return {ErrorKind::kState, fmt::format("tensor '{}' (section {}){}", base::printable(tensor.name),
                                         base::printable(tensor.section), what)};
}

void check_claim(const CatalogTensor& tensor, const Piece& claim) {
  if (claim.box.offset.size() != claim.box.shape.size()) {
    throw state_error(tensor, fmt::format(": rank {} holds a box with {} offsets and {} sizes", claim.rank,
                                          claim.box.offset.size(), claim.box.shape.size()));
  }
  if (!shard::fits(claim.box, tensor.shape)) {
    throw state_error(tensor, fmt::format(": rank {} holds {}, which is not inside the tensor {}", claim.rank,
                                          shard::to_string(claim.box), shard::to_string(shard::whole(tensor.shape))));
  }
  const Box whole = shard::whole(tensor.shape);
  if (!is_byte_aligned(tensor.dtype, {0, 0, whole}, claim.box, claim.box)) {
    throw state_error(tensor,
                      fmt::format(" is packed ({}): rank {} holds {}, which begins or ends inside a byte; cut it where "
                                  "a whole number of bytes ends",
                                  name_of(tensor.dtype), claim.rank, shard::to_string(claim.box)));
  }
}

void check_groups(const CatalogTensor& tensor, const std::vector<ReplicaGroup>& groups) {
  const Box whole = shard::whole(tensor.shape);
  if (shard::is_empty(whole)) return;
  std::vector<Box> boxes;
  boxes.reserve(groups.size());
  for (const ReplicaGroup& group : groups) boxes.push_back(group.box);
  const Tiling tiling = check_tiling(whole, boxes);
  if (tiling.overlap) {
    const ReplicaGroup& a = groups[tiling.overlap->first];
    const ReplicaGroup& b = groups[tiling.overlap->second];
    throw state_error(tensor,
                      fmt::format(" overlaps: rank {} holds {} and rank {} holds {}, both hold {}; replicas must be "
                                  "equal boxes",
                                  a.holders.front().rank, shard::to_string(a.box), b.holders.front().rank,
                                  shard::to_string(b.box), shard::to_string(*shard::intersect(a.box, b.box))));
  }
  if (tiling.holes.empty()) return;
  const std::size_t more = tiling.holes.size() - 1;
  throw state_error(tensor,
                    fmt::format(": elements {} are held by no rank{}", shard::to_string(tiling.holes.front()),
                                more == 0 ? "" : fmt::format(" (and {} more {})", more, more == 1 ? "box" : "boxes")));
}

}  // namespace

std::vector<ReplicaGroup> check_coverage(const CatalogTensor& tensor, std::vector<Piece> claims) {
  std::erase_if(claims, [](const Piece& claim) { return shard::is_empty(claim.box); });
  std::sort(claims.begin(), claims.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.box.offset, a.box.shape, a.rank, a.local) < std::tie(b.box.offset, b.box.shape, b.rank, b.local);
  });
  std::vector<ReplicaGroup> groups;
  for (Piece& claim : claims) {
    const ReplicaGroup::Holder holder{claim.rank, claim.local};
    if (!groups.empty() && groups.back().box == claim.box) {
      if (groups.back().holders.back().rank != claim.rank) groups.back().holders.push_back(holder);
      continue;
    }
    check_claim(tensor, claim);
    groups.push_back({std::move(claim.box), {holder}});
  }
  check_groups(tensor, groups);
  return groups;
}

}  // namespace cairn::plan
