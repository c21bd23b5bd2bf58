#include "planning/claim_steps.hpp"

#include <cstring>
#include <unordered_map>

#include "cairn/error.hpp"
#include "plan/coverage.hpp"

namespace cairn::checkpoint {
namespace {

/// A replica group shares the writing of a box when every holder gets at least this much.
constexpr std::uint64_t kShareBytes = 256ULL << 10;

/// Fixed-size record of a claim or a provision. Little-endian host, one architecture per job.
struct BoxRecord {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  std::uint64_t dimensions = 0;
  std::uint64_t offset[plan::kMaxRecordRank] = {};
  std::uint64_t shape[plan::kMaxRecordRank] = {};
};

void append(comm::MailWriter& out, std::uint32_t tensor, std::uint32_t local, const Box& box) {
  BoxRecord record{tensor, local, box.offset.size(), {}, {}};
  std::copy(box.offset.begin(), box.offset.end(), record.offset);
  std::copy(box.shape.begin(), box.shape.end(), record.shape);
  out.raw(&record, sizeof record);
}

std::vector<BoxRecord> records_of(const base::Bytes& bytes) {
  if (bytes.size() % sizeof(BoxRecord) != 0) throw Error(ErrorKind::kInternal, "box records of a broken size");
  std::vector<BoxRecord> records(bytes.size() / sizeof(BoxRecord));
  if (!bytes.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

Box box_of(const BoxRecord& record) {
  const auto n = static_cast<std::ptrdiff_t>(record.dimensions);
  return {{record.offset, record.offset + n}, {record.shape, record.shape + n}};
}

}  // namespace

int home_of(std::uint32_t tensor, int ranks) { return static_cast<int>(tensor % static_cast<std::uint32_t>(ranks)); }

comm::Mail claim_boxes(const NumberedBoxes& mine, int ranks) {
  comm::MailWriter claims(static_cast<std::size_t>(ranks));
  for (std::uint32_t i = 0; i < mine.boxes.size(); ++i) {
    const std::uint32_t tensor = mine.tensor_of_shard[mine.boxes[i].shard];
    append(claims, tensor, i, mine.boxes[i].box);
    claims.close(static_cast<std::size_t>(home_of(tensor, ranks)));
  }
  return claims.take();
}

comm::Mail settle_claims(const plan::PackedCatalog& catalog, const comm::Mail& claims, int rank) {
  const auto ranks = static_cast<std::uint32_t>(claims.size());
  std::unordered_map<std::uint32_t, std::vector<plan::Claim>> by_tensor;
  for (std::size_t from = 0; from < claims.size(); ++from) {
    for (const BoxRecord& record : records_of(claims[from])) {
      by_tensor[record.tensor].push_back({static_cast<int>(from), record.local, box_of(record)});
    }
  }
  comm::MailWriter provisions(claims.size());
  for (auto tensor = static_cast<std::uint32_t>(rank); tensor < catalog.size(); tensor += ranks) {
    const auto provided = plan::provide(catalog.at(tensor), std::move(by_tensor[tensor]), kShareBytes, tensor);
    for (const plan::Provision& provision : provided) {
      append(provisions, tensor, provision.local, provision.part);
      provisions.close(static_cast<std::size_t>(provision.rank));
    }
  }
  return provisions.take();
}

std::vector<plan::MemoryPart> collect_parts(const comm::Mail& provided, const NumberedBoxes& mine) {
  std::vector<plan::MemoryPart> parts;
  for (const base::Bytes& bytes : provided) {
    for (const BoxRecord& record : records_of(bytes)) {
      const LocalBox& local = mine.boxes[record.local];
      parts.push_back({mine.tensor_of_shard[local.shard], record.local, local.box, box_of(record)});
    }
  }
  return parts;
}

}  // namespace cairn::checkpoint
