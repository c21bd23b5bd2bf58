#include "checkpoint/catalog_exchange.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <unordered_map>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "plan/coverage.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// A replica group shares the writing of a box when every holder gets at least this much.
constexpr std::uint64_t kShareBytes = 256ULL << 10;

using Key = std::pair<std::string, std::string>;  // section, name

/// FNV-1a: the same on every rank, unlike std::hash across builds.
std::uint64_t hash_of(const Key& key) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::string* text : {&key.first, &key.second}) {
    for (const char c : *text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    hash = (hash ^ 0xffU) * 0x100000001b3ULL;
  }
  return hash ^ hash >> 32;
}

void put_tensor(base::ByteWriter& out, const plan::CatalogTensor& tensor) {
  out.text(tensor.section);
  out.text(tensor.name);
  out.u64(static_cast<std::uint64_t>(tensor.dtype));
  out.u64s(tensor.shape);
}

plan::CatalogTensor get_tensor(base::ByteReader& in) {
  plan::CatalogTensor tensor;
  tensor.section = in.text();
  tensor.name = in.text();
  tensor.dtype = static_cast<DType>(in.u64());
  tensor.shape = in.u64s();
  return tensor;
}

/// What a home knows of one tensor: the first description, and the rank that gave it.
struct Described {
  plan::CatalogTensor tensor;
  int rank = 0;
};

void merge(std::map<Key, Described>& known, plan::CatalogTensor tensor, int rank) {
  const auto [at, is_new] = known.try_emplace({tensor.section, tensor.name}, Described{tensor, rank});
  if (is_new || at->second.tensor == tensor) return;
  const plan::CatalogTensor& first = at->second.tensor;
  const auto text = [](const plan::CatalogTensor& t) {
    return fmt::format("{} {}", name_of(t.dtype), shard::to_string(shard::whole(t.shape)));
  };
  throw Error(ErrorKind::kState,
              fmt::format("tensor '{}' (section {}) is {} on rank {} but {} on rank {}", base::printable(tensor.name),
                          base::printable(tensor.section), text(first), at->second.rank, text(tensor), rank));
}

/// Fixed-size record of a claim or a provision. Little-endian host, one architecture per job.
struct BoxRecord {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  std::uint64_t dimensions = 0;
  std::uint64_t offset[plan::kMaxRecordRank] = {};
  std::uint64_t shape[plan::kMaxRecordRank] = {};
};

void append(base::Bytes& out, std::uint32_t tensor, std::uint32_t local, const Box& box) {
  BoxRecord record{tensor, local, box.offset.size(), {}, {}};
  std::copy(box.offset.begin(), box.offset.end(), record.offset);
  std::copy(box.shape.begin(), box.shape.end(), record.shape);
  const auto* from = reinterpret_cast<const std::byte*>(&record);
  out.insert(out.end(), from, from + sizeof record);
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

int home_of(std::uint32_t tensor, int ranks) { return static_cast<int>(tensor % static_cast<std::uint32_t>(ranks)); }

}  // namespace

plan::Catalog exchange_catalog(comm::Communicator& communicator, std::span<const Source> state) {
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  std::vector<base::Bytes> outgoing(ranks);
  comm::agree(communicator, "describe the state", [&] {
    std::map<Key, Described> mine;
    for (const Source& source : state)
      merge(mine, {source.section, source.name, source.dtype, source.shape}, communicator.rank());
    std::vector<base::ByteWriter> writers(ranks);
    for (const auto& [key, described] : mine) put_tensor(writers[hash_of(key) % ranks], described.tensor);
    for (std::size_t rank = 0; rank < ranks; ++rank) outgoing[rank] = writers[rank].take();
  });
  const std::vector<base::Bytes> incoming = communicator.all_to_all(std::move(outgoing));
  base::ByteWriter homed;
  comm::agree(communicator, "merge the catalog", [&] {
    std::map<Key, Described> known;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      base::ByteReader in(incoming[rank]);
      while (!in.done()) merge(known, get_tensor(in), static_cast<int>(rank));
    }
    for (const auto& [key, described] : known) put_tensor(homed, described.tensor);
  });
  const std::vector<base::Bytes> all = communicator.all_gather(homed.bytes());
  plan::Catalog catalog;
  comm::agree(communicator, "order the catalog", [&] {
    std::vector<plan::CatalogTensor> tensors;
    for (const base::Bytes& part : all) {
      base::ByteReader in(part);
      while (!in.done()) tensors.push_back(get_tensor(in));
    }
    catalog = plan::make_catalog(std::move(tensors));
  });
  return catalog;
}

std::vector<plan::MemoryPart> exchange_claims(comm::Communicator& communicator, const plan::Catalog& catalog,
                                              std::span<const Source> state, std::span<const LocalBox> boxes) {
  const int ranks = communicator.size();
  std::vector<base::Bytes> claims(static_cast<std::size_t>(ranks));
  std::vector<std::uint32_t> tensor_of_box(boxes.size());
  comm::agree(communicator, "claim the state", [&] {
    std::map<Key, std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < catalog.tensors.size(); ++i) {
      numbers[{catalog.tensors[i].section, catalog.tensors[i].name}] = i;
    }
    for (std::uint32_t i = 0; i < boxes.size(); ++i) {
      const Source& source = state[boxes[i].shard];
      const std::uint32_t tensor = numbers.at({source.section, source.name});
      tensor_of_box[i] = tensor;
      append(claims[static_cast<std::size_t>(home_of(tensor, ranks))], tensor, i, boxes[i].box);
    }
  });
  const std::vector<base::Bytes> claimed = communicator.all_to_all(std::move(claims));
  std::vector<base::Bytes> provisions(static_cast<std::size_t>(ranks));
  comm::agree(communicator, "check that the state is whole", [&] {
    std::unordered_map<std::uint32_t, std::vector<plan::Claim>> by_tensor;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const BoxRecord& record : records_of(claimed[static_cast<std::size_t>(rank)])) {
        by_tensor[record.tensor].push_back({rank, record.local, box_of(record)});
      }
    }
    for (auto tensor = static_cast<std::uint32_t>(communicator.rank()); tensor < catalog.tensors.size();
         tensor += static_cast<std::uint32_t>(ranks)) {
      const auto provided = plan::provide(catalog.tensors[tensor], std::move(by_tensor[tensor]), kShareBytes, tensor);
      for (const auto& provision : provided) {
        append(provisions[static_cast<std::size_t>(provision.rank)], tensor, provision.local, provision.part);
      }
    }
  });
  const std::vector<base::Bytes> provided = communicator.all_to_all(std::move(provisions));
  std::vector<plan::MemoryPart> parts;
  comm::agree(communicator, "collect the parts to provide", [&] {
    for (const base::Bytes& bytes : provided) {
      for (const BoxRecord& record : records_of(bytes)) {
        const LocalBox& local = boxes[record.local];
        parts.push_back({tensor_of_box[record.local], record.local, local.box, box_of(record)});
      }
    }
  });
  return parts;
}

}  // namespace cairn::checkpoint
