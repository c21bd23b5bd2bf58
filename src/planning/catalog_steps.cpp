#include "planning/catalog_steps.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "shard/box_math.hpp"

namespace cairn::planning {
namespace {

/// Approximate number of samples of all ranks together. Neighbouring samples are then 1/1024 of the catalog apart on
/// average, and sorting the samples on every rank takes a millisecond.
constexpr std::uint64_t kSamples = 1024;

using Key = plan::CatalogKey;  // a view of descriptions that outlive it

/// FNV-1a: the same on every rank, unlike std::hash in different builds.
struct HashKey {
  std::uint64_t operator()(const Key& key) const {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const std::string_view text : {key.section, key.name}) {
      for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
      hash = (hash ^ 0xffU) * 0x100000001b3ULL;
    }
    return hash ^ hash >> 32;
  }
};

/// `tensor`: a Source or a CatalogTensor.
template <class Tensor>
void put_tensor(comm::MessageWriter& out, const Tensor& tensor, std::string_view coding) {
  out.text(tensor.section);
  out.text(tensor.name);
  out.u64(static_cast<std::uint64_t>(tensor.dtype));
  out.u64s(tensor.shape);
  out.text(coding);
}

plan::CatalogTensor get_tensor(comm::MessageReader& in) {
  plan::CatalogTensor tensor;
  tensor.section = in.text();
  tensor.name = in.text();
  tensor.dtype = static_cast<DType>(in.u64());
  tensor.shape = in.u64s();
  tensor.coding = in.text();
  return tensor;
}

void skip_tensor(comm::MessageReader& in) {
  in.text();
  in.text();
  in.u64();
  in.skip_u64s();
  in.text();
}

Error contradiction(const plan::CatalogTensor& first, int first_rank, const plan::CatalogTensor& second,
                    int second_rank) {
  const auto text = [](const plan::CatalogTensor& t) {
    return fmt::format("{} {}", name_of(t.dtype), shard::to_string(shard::whole(t.shape)));
  };
  return {ErrorKind::kState,
          fmt::format("tensor '{}' (section {}) is {} on rank {} but {} on rank {}", base::printable(first.name),
                      base::printable(first.section), text(first), first_rank, text(second), second_rank)};
}

}  // namespace

comm::Messages describe_to_homes(const DescribedState& state, int rank, int ranks) {
  const auto homes = static_cast<std::uint64_t>(ranks);
  comm::MessageWriter out(homes);
  std::unordered_map<Key, const Source*, HashKey> mine;
  mine.reserve(state.sources.size());
  for (std::size_t i = 0; i < state.sources.size(); ++i) {
    const Source& source = state.sources[i];
    const Key key{source.section, source.name};
    const auto [at, is_new] = mine.try_emplace(key, &source);
    if (is_new) {
      put_tensor(out, source, state.codings.empty() ? std::string_view() : state.codings[i]);
      out.close(HashKey{}(key) % homes);
    } else if (at->second->dtype != source.dtype || at->second->shape != source.shape) {
      const Source& first = *at->second;
      throw contradiction({first.section, first.name, first.dtype, first.shape}, rank,
                          {source.section, source.name, source.dtype, source.shape}, rank);
    }
  }
  return out.take();
}

std::vector<plan::CatalogTensor> merge_described(const comm::Messages& incoming) {
  struct Described {
    plan::CatalogTensor tensor;
    int rank = 0;
  };
  std::unordered_set<std::string_view> seen;  // replicas have equal entries, byte for byte
  std::map<std::pair<std::string, std::string>, Described> known;
  for (std::size_t rank = 0; rank < incoming.size(); ++rank) {
    comm::MessageReader in(incoming[rank]);
    while (!in.done()) {
      const auto* begin = reinterpret_cast<const char*>(incoming[rank].data()) + (incoming[rank].size() - in.left());
      const std::size_t left = in.left();
      skip_tensor(in);
      if (!seen.insert({begin, left - in.left()}).second) continue;
      comm::MessageReader description(base::as_bytes({begin, left - in.left()}));
      plan::CatalogTensor tensor = get_tensor(description);
      const auto from = static_cast<int>(rank);
      const auto [at, is_new] = known.try_emplace({tensor.section, tensor.name}, Described{tensor, from});
      if (!is_new) throw contradiction(at->second.tensor, at->second.rank, tensor, from);
    }
  }
  std::vector<plan::CatalogTensor> merged;
  merged.reserve(known.size());
  for (auto& [key, described] : known) merged.push_back(std::move(described.tensor));
  return merged;
}

template <class Tensor>
base::Bytes sample_names(const std::vector<Tensor>& homed, int rank, int ranks) {
  base::ByteWriter out;
  const auto world = static_cast<std::uint64_t>(ranks);
  const std::uint64_t every = base::ceil_div(world, kSamples);  // one rank in this many gives samples
  if (static_cast<std::uint64_t>(rank) % every != 0) return out.take();
  const std::uint64_t givers = base::ceil_div(world, every);
  const std::uint64_t wanted = std::min<std::uint64_t>(base::ceil_div(kSamples, givers), homed.size());
  // Each rank starts at a different position (golden ratio): homes sort their tensors, so the first tensors of all
  // homes are similar.
  const double place = std::fmod(0.6180339887498949 * (rank + 1), 1.0);
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const double at = (static_cast<double>(i) + place) / static_cast<double>(wanted);
    const Tensor& tensor = homed[static_cast<std::size_t>(at * static_cast<double>(homed.size()))];
    out.text(tensor.section);
    out.text(tensor.name);
  }
  return out.take();
}
template base::Bytes sample_names(const std::vector<plan::CatalogTensor>& homed, int rank, int ranks);
template base::Bytes sample_names(const std::vector<format::PlacedTensor>& homed, int rank, int ranks);

Stretches::Stretches(const comm::Messages& samples) : ranks_(samples.size()) {
  std::vector<plan::CatalogKey> names;
  for (const base::Bytes& sample : samples) {
    comm::MessageReader in(sample);
    while (!in.done()) {
      const std::string_view section = in.text();
      names.push_back({section, in.text()});
    }
  }
  borders_.reserve(names.size());
  for (const std::uint32_t number : plan::catalog_order(names)) borders_.push_back(names[number]);
}

std::size_t Stretches::rank_of(std::string_view section, std::string_view name) const {
  const auto comes_before = [](const plan::CatalogKey& a, const plan::CatalogKey& b) {
    return plan::in_catalog_order(a.section, a.name, b.section, b.name);
  };
  const auto behind = std::ranges::upper_bound(borders_, plan::CatalogKey{section, name}, comes_before);
  return static_cast<std::size_t>(behind - borders_.begin()) * ranks_ / (borders_.size() + 1);
}

comm::Messages spread_in_order(std::span<const plan::CatalogTensor> homed, const comm::Messages& samples) {
  comm::MessageWriter out(samples.size());
  if (homed.empty()) return out.take();
  const Stretches stretches(samples);
  for (const plan::CatalogTensor& tensor : homed) {
    put_tensor(out, tensor, tensor.coding);
    out.close(stretches.rank_of(tensor.section, tensor.name));
  }
  return out.take();
}

base::Bytes pack_stretch(const comm::Messages& incoming) {
  std::vector<plan::CatalogTensor> tensors;
  for (const base::Bytes& bytes : incoming) {
    comm::MessageReader in(bytes);
    while (!in.done()) tensors.push_back(get_tensor(in));
  }
  plan::CatalogPacker packer;
  for (const plan::CatalogTensor& tensor : plan::make_catalog(std::move(tensors)).tensors) packer.add(tensor);
  return packer.take();
}

std::vector<std::uint32_t> number_tensors(const plan::PackedCatalog& catalog, std::span<const Source> state) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(state.size());
  for (const Source& source : state) {
    const auto number = catalog.find(source.section, source.name);
    if (!number) {
      throw base::internal_error(fmt::format("tensor '{}' (section {}) is missing in the catalog",
                                             base::printable(source.name), base::printable(source.section)));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

plan::PackedCatalog exchange_catalog(comm::Communicator& communicator, const DescribedState& state) {
  comm::Messages messages;
  comm::agree(communicator, "describe the state",
              [&] { messages = describe_to_homes(state, communicator.rank(), communicator.size()); });
  messages = communicator.all_to_all(std::move(messages));
  std::vector<plan::CatalogTensor> homed;
  base::Bytes mine;
  comm::agree(communicator, "merge the catalog", [&] {
    homed = merge_described(messages);
    mine = sample_names(homed, communicator.rank(), communicator.size());
  });
  messages = communicator.all_gather(mine);
  comm::agree(communicator, "spread the catalog", [&] { messages = spread_in_order(homed, messages); });
  messages = communicator.all_to_all(std::move(messages));
  comm::agree(communicator, "order the catalog", [&] { mine = pack_stretch(messages); });
  messages = communicator.all_gather(mine);
  plan::PackedCatalog catalog;
  comm::agree(communicator, "collect the catalog", [&] { catalog = plan::PackedCatalog(messages); });
  return catalog;
}

}  // namespace cairn::planning
