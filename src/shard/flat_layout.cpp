// Flat buffers of ZeRO, FSDP1 and Megatron; flat_layout.hpp has the formulas.
#include "shard/flat_layout.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"

namespace cairn::shard {
namespace {

std::vector<std::uint32_t> ascending(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

// Places tensors end to end in `buffer.order`, each at a multiple of `alignment`. Returns the end of the last.
std::uint64_t lay_out(FlatBuffer& buffer, std::span<const std::uint64_t> numels, std::uint64_t alignment) {
  buffer.starts.resize(numels.size());
  std::uint64_t end = 0;
  for (const std::uint32_t tensor : buffer.order) {
    buffer.starts[tensor] = base::round_up(end, alignment);
    end = base::add(buffer.starts[tensor], numels[tensor], "a flat buffer");
  }
  return end;
}

}  // namespace

FlatBuffer zero1_buffer(std::span<const std::uint64_t> numels, const Zero1Options& options) {
  FlatBuffer buffer;
  buffer.order = ascending(numels.size());
  if (options.round_robin) {
    std::ranges::stable_sort(buffer.order, {}, [&](std::uint32_t i) { return i % options.dp; });
  }
  const std::uint64_t end = lay_out(buffer, numels, 1);
  buffer.buckets.push_back({0, base::round_up(end, options.alignment * options.dp), end});
  return buffer;
}

FlatBuffer zero3_buffer(std::span<const std::uint64_t> numels, std::uint64_t dp) {
  FlatBuffer buffer;
  buffer.order = ascending(numels.size());
  std::uint64_t at = 0;
  for (const std::uint64_t numel : numels) {
    const std::uint64_t end = base::add(at, base::round_up(numel, dp), "a flat buffer");
    buffer.starts.push_back(at);
    buffer.buckets.push_back({at, end, at + numel});
    at = end;
  }
  return buffer;
}

FlatBuffer fsdp1_buffer(std::span<const std::uint64_t> numels, std::uint64_t world, std::uint64_t align_elems) {
  FlatBuffer buffer;
  buffer.order = ascending(numels.size());
  const std::uint64_t end = lay_out(buffer, numels, std::max<std::uint64_t>(1, align_elems));
  buffer.buckets.push_back({0, base::round_up(end, world), end});
  return buffer;
}

FlatBuffer megatron_buffer(std::span<const std::uint64_t> numels, const MegatronOptions& options) {
  FlatBuffer buffer;
  buffer.order = ascending(numels.size());
  std::ranges::reverse(buffer.order);
  buffer.starts.resize(numels.size());
  const std::uint64_t unit = std::lcm(options.dp, options.pad_to);
  std::uint64_t start = 0;
  std::uint64_t bucket_start = 0;
  bool bucket_is_empty = true;
  const auto close = [&](std::uint64_t used_end) {
    const std::uint64_t end = base::round_up(used_end, unit);
    buffer.buckets.push_back({bucket_start, end, used_end});
    start = bucket_start = end;
    bucket_is_empty = true;
  };
  for (const std::uint32_t tensor : buffer.order) {
    start = base::round_up(start, options.start_alignment);
    const bool alone = !options.shared_embedding.empty() && options.shared_embedding[tensor] != 0;
    if (alone && !bucket_is_empty) close(start);
    buffer.starts[tensor] = start;
    start = base::add(start, numels[tensor], "a flat buffer");
    bucket_is_empty = false;
    if (alone || (options.bucket_size != 0 && start - bucket_start >= options.bucket_size)) close(start);
  }
  if (!bucket_is_empty) close(start);
  return buffer;
}

std::vector<FlatPiece> pieces_of(const FlatBuffer& buffer, std::span<const std::uint64_t> numels, std::uint64_t ways,
                                 std::uint64_t at) {
  std::vector<FlatPiece> pieces;
  std::size_t next = 0;  // first tensor in `order` that can reach into the bucket
  for (std::size_t b = 0; b < buffer.buckets.size(); ++b) {
    const FlatBucket& bucket = buffer.buckets[b];
    const std::uint64_t part = (bucket.end - bucket.begin) / ways;
    const std::uint64_t begin = bucket.begin + at * part;
    for (; next < buffer.order.size(); ++next) {
      const std::uint32_t tensor = buffer.order[next];
      const std::uint64_t start = buffer.starts[tensor];
      if (start >= bucket.end) break;
      const std::uint64_t from = std::max(start, begin);
      const std::uint64_t to = std::min(start + numels[tensor], begin + part);
      if (from >= to) continue;
      pieces.push_back({tensor, from - start, to - start, bucket.begin / ways + (from - begin),
                        static_cast<std::uint32_t>(b), from - begin});
    }
  }
  return pieces;
}

}  // namespace cairn::shard
