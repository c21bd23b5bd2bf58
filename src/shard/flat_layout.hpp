// Flat buffers: DeepSpeed ZeRO-1/-2, ZeRO-3, FSDP1 and Megatron's distributed optimizer place parameters end to end and
// cut them over data-parallel ranks.
//
// All four kinds have one structure: a buffer of elements, tiled by buckets, with a start for each tensor. A bucket is
// cut into equal parts, and a rank's local buffer has its part of each bucket, end to end. Only starts and buckets
// differ. The formulas were checked against real checkpoints of the four kinds (tests/data/layouts). Pure functions;
// units are elements of the rank's own (tensor-parallel) shards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cairn::shard {

/// A piece of a tensor in a flat buffer (ZeRO, FSDP1, Megatron).
struct FlatPiece {
  std::uint32_t tensor = 0;
  std::uint64_t begin = 0;  ///< flat elements of the tensor, or of its TP shard if tp also cuts it
  std::uint64_t end = 0;
  std::uint64_t at = 0;         ///< element of the rank's local buffer
  std::uint32_t bucket = 0;     ///< number of the bucket that has the piece
  std::uint64_t in_bucket = 0;  ///< element of the rank's part of the bucket

  friend bool operator==(const FlatPiece&, const FlatPiece&) = default;
};

struct FlatBucket {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;       ///< `begin` plus a multiple of the number of ranks
  std::uint64_t used_end = 0;  ///< [used_end, end) is padding
};

struct FlatBuffer {
  std::vector<std::uint64_t> starts;  ///< by tensor
  std::vector<std::uint32_t> order;   ///< tensors by ascending start
  std::vector<FlatBucket> buckets;    ///< ascending, without gaps
};

/// DeepSpeed ZeRO-1 and -2, one parameter group: parameters end to end, the tail padded to a multiple of alignment *
/// dp. `round_robin`: DeepSpeed's round_robin_gradients, which places parameters 0, dp, 2 dp ... first, then 1, dp + 1
/// ...
struct Zero1Options {
  std::uint64_t dp = 1;
  std::uint64_t alignment = 2;
  bool round_robin = false;
};
FlatBuffer zero1_buffer(std::span<const std::uint64_t> numels, const Zero1Options& options);

/// DeepSpeed ZeRO-3, one sub-group: every parameter has a slot of ceil(n / dp) elements on every rank.
FlatBuffer zero3_buffer(std::span<const std::uint64_t> numels, std::uint64_t dp);

/// FSDP1, one wrapped module. Each start is padded to a multiple of `align_elems`: 16 bytes in elements with
/// use_orig_params, otherwise 0 (no padding). The total is padded to a multiple of the number of ranks.
FlatBuffer fsdp1_buffer(std::span<const std::uint64_t> numels, std::uint64_t world, std::uint64_t align_elems);

/// Megatron's distributed optimizer, one (param dtype, grad dtype) buffer; numels in named_parameters() order.
/// Parameters are placed in reverse order at multiples of `start_alignment`; a bucket ends when it reaches bucket_size
/// (0: one bucket) and is padded to lcm(dp, pad_to).
struct MegatronOptions {
  std::uint64_t dp = 1;
  std::uint64_t bucket_size = 0;
  std::uint64_t start_alignment = 64;
  std::uint64_t pad_to = 128;                  ///< lcm(128, 65536) with pad_buckets_for_high_nccl_busbw
  std::vector<std::uint8_t> shared_embedding;  ///< by tensor: whether it has a separate bucket; empty: none has
};
FlatBuffer megatron_buffer(std::span<const std::uint64_t> numels, const MegatronOptions& options);

/// The pieces of rank `at` of `ways`, ascending in the rank's local buffer. `numels` as passed for `buffer`.
std::vector<FlatPiece> pieces_of(const FlatBuffer& buffer, std::span<const std::uint64_t> numels, std::uint64_t ways,
                                 std::uint64_t at);

}  // namespace cairn::shard
