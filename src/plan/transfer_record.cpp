// Transfers on the wire: six 32-bit numbers (memory rank, extent rank, tensor, stored, local, dimensions), then offset
// and shape of the memory box and of the region, each filled up with zeros to kMaxRecordRank 64-bit numbers.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.hpp"
#include "plan/transfer.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

struct Record {
  std::array<std::uint32_t, 6> numbers{};
  std::array<std::array<std::uint64_t, kMaxRecordRank>, 4> places{};
};
static_assert(sizeof(Record) == kTransferRecordBytes, "a record has no padding");

void put(std::array<std::uint64_t, kMaxRecordRank>& place, const std::vector<std::uint64_t>& values) {
  std::copy(values.begin(), values.end(), place.begin());
}

std::vector<std::uint64_t> take(const std::array<std::uint64_t, kMaxRecordRank>& place, std::size_t rank) {
  return {place.begin(), place.begin() + static_cast<std::ptrdiff_t>(rank)};
}

}  // namespace

void append_record(base::Bytes& out, const Transfer& transfer) {
  const std::size_t rank = transfer.region.shape.size();
  if (rank > kMaxRecordRank) {
    throw Error(ErrorKind::kUsage, fmt::format("box {} has {} dimensions; at most {} can travel between ranks: join "
                                               "neighbouring dimensions of the tensor",
                                               shard::to_string(transfer.region), rank, kMaxRecordRank));
  }
  if (transfer.region.offset.size() != rank || transfer.memory_box.offset.size() != rank ||
      transfer.memory_box.shape.size() != rank) {
    throw Error(ErrorKind::kInternal, "transfer record: boxes with different numbers of dimensions");
  }
  Record record;
  record.numbers = {base::narrow<std::uint32_t>(transfer.memory_rank, "memory rank"),
                    base::narrow<std::uint32_t>(transfer.extent_rank, "extent rank"),
                    transfer.tensor,
                    transfer.stored,
                    transfer.local,
                    static_cast<std::uint32_t>(rank)};
  put(record.places[0], transfer.memory_box.offset);
  put(record.places[1], transfer.memory_box.shape);
  put(record.places[2], transfer.region.offset);
  put(record.places[3], transfer.region.shape);
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  out.insert(out.end(), bytes, bytes + sizeof record);
}

std::vector<Transfer> parse_records(std::span<const std::byte> records) {
  if (records.size() % kTransferRecordBytes != 0) {
    throw Error(ErrorKind::kInternal, fmt::format("{} bytes of transfer records: not a multiple of {}", records.size(),
                                                  kTransferRecordBytes));
  }
  std::vector<Transfer> out(records.size() / kTransferRecordBytes);
  for (std::size_t i = 0; i < out.size(); ++i) {
    Record record;
    std::memcpy(&record, records.data() + i * kTransferRecordBytes, sizeof record);
    const std::size_t rank = record.numbers[5];
    if (rank > kMaxRecordRank) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("transfer record {} says {} dimensions, at most {} fit", i, rank, kMaxRecordRank));
    }
    Transfer& transfer = out[i];
    transfer.memory_rank = base::narrow<int>(record.numbers[0], "memory rank of a transfer record");
    transfer.extent_rank = base::narrow<int>(record.numbers[1], "extent rank of a transfer record");
    transfer.tensor = record.numbers[2];
    transfer.stored = record.numbers[3];
    transfer.local = record.numbers[4];
    transfer.memory_box = {take(record.places[0], rank), take(record.places[1], rank)};
    transfer.region = {take(record.places[2], rank), take(record.places[3], rank)};
  }
  return out;
}

}  // namespace cairn::plan
