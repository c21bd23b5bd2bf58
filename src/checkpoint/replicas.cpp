#include "checkpoint/replicas.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/internal_error.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/messages.hpp"
#include "format/crc32c.hpp"

namespace cairn::checkpoint {
namespace {

/// Size of the buffer for bytes to hash that are not contiguous in host memory.
constexpr std::uint64_t kRoomBytes = 512ULL << 10;
/// Number of boxes by which the prefetching is ahead of the reading.
constexpr std::size_t kAhead = 4;
constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

plan::Sample sample_of(const HeldReplica& held, const ReplicaComparison& what) {
  const std::uint64_t bytes = plan::own_bytes(*held.box);
  if (what.checks.replicas == ReplicaCheck::kAll) return plan::Sample::all(bytes);
  if (bytes <= what.rule.whole_bytes) return plan::Sample::all(bytes);
  return plan::Sample::of(bytes, plan::sample_seed(what.save, held.tensor, held.box->box), what.rule);
}

/// Reads ranges of boxes, and passes each to see(number, bytes), in order for each box. Ranges in memory with gaps or
/// on a device are collected in a buffer, and passed on when the buffer is full, or by finish().
template <class See>
class RangeReader {
 public:
  RangeReader(io::DeviceCopies* device, See see) : device_(device), see_(std::move(see)) {}

  void read(std::size_t number, const plan::MemoryBox& box, const plan::ByteRange& range) {
    if (!plan::is_on_device(box) && box.strides.empty()) {
      see_(number, std::span<const std::byte>(box.bytes.subspan(range.begin, range.bytes())));
      return;
    }
    if (kRoomBytes - used_ < range.bytes()) finish();
    room_.resize(kRoomBytes);
    std::byte* to = room_.data() + used_;
    waiting_.push_back({number, used_, range.bytes()});
    used_ += range.bytes();
    plan::for_each_stretch(box, range, [&](std::uint64_t offset, std::uint64_t bytes) {
      const std::byte* from = box.bytes.data() + offset;
      if (plan::is_on_device(box)) {
        device_->to_host({to, bytes}, {from, bytes}, bytes, 1);
      } else {
        std::memcpy(to, from, bytes);
      }
      to += bytes;
    });
  }

  /// Passes the collected ranges to see().
  void finish() {
    if (device_ != nullptr) device_->finish();
    for (const Waiting& one : waiting_) see_(one.number, std::span(room_).subspan(one.begin, one.bytes));
    waiting_.clear();
    used_ = 0;
  }

 private:
  struct Waiting {
    std::size_t number = 0;
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
  };
  io::DeviceCopies* device_;
  See see_;
  base::Bytes room_;
  std::vector<Waiting> waiting_;
  std::uint64_t used_ = 0;
};

/// Each place of a sample is in a different cache line: after a prefetch, the lines are loaded in parallel.
void prefetch(const plan::MemoryBox& box, const plan::Sample& sample) {
  if (plan::is_on_device(box) || !box.strides.empty()) return;
  for (std::uint64_t i = 0; i < sample.size() && sample[i].bytes() <= plan::kPlaceBytes; ++i) {
    __builtin_prefetch(box.bytes.data() + sample[i].begin);
  }
}

std::uint64_t with(std::uint64_t hash, std::uint64_t more) { return base::split_mix64(hash ^ more); }

/// The hash of each replica.
std::vector<std::uint64_t> hash_boxes(const ReplicaComparison& what) {
  std::vector<std::uint64_t> hashes(what.replicas.size());
  RangeReader reader(what.device, [&](std::size_t number, std::span<const std::byte> bytes) {
    hashes[number] = with(hashes[number], format::crc32c(bytes));
  });
  std::array<std::optional<plan::Sample>, kAhead> ahead;
  for (std::size_t next = 0; next < what.replicas.size() + kAhead; ++next) {
    std::optional<plan::Sample>& sample = ahead[next % kAhead];
    if (next >= kAhead) {
      const std::size_t i = next - kAhead;
      for (std::uint64_t r = 0; r < sample->size(); ++r) reader.read(i, *what.replicas[i].box, (*sample)[r]);
    }
    if (next >= what.replicas.size()) continue;
    sample = sample_of(what.replicas[next], what);
    prefetch(*what.replicas[next].box, *sample);
  }
  reader.finish();
  return hashes;
}

/// Messages to the ranks that compare sets of holders: the hash of each set, and the combined hash of its boxes.
comm::Messages hash_sets(std::span<const HeldReplica> replicas, std::span<const std::uint64_t> hashes, int ranks) {
  std::unordered_map<std::uint64_t, std::uint64_t> of_sets;
  for (std::size_t i = 0; i < replicas.size();) {
    const std::uint64_t holders = replicas[i].holders;
    std::uint64_t& hash = of_sets[holders];
    for (; i < replicas.size() && replicas[i].holders == holders; ++i) hash = with(hash, hashes[i]);
  }
  comm::MessageWriter out(static_cast<std::size_t>(ranks));
  for (const auto& [holders, hash] : of_sets) {
    out.u64(holders);
    out.u64(hash);
    out.close(holders % static_cast<std::uint64_t>(ranks));
  }
  return out.take();
}

bool do_sets_differ(const comm::Messages& messages) {
  std::unordered_map<std::uint64_t, std::uint64_t> of_sets;
  for (const base::Bytes& message : messages) {
    for (comm::MessageReader in(message); !in.done();) {
      const std::uint64_t holders = in.u64();
      const std::uint64_t hash = in.u64();
      if (of_sets.try_emplace(holders, hash).first->second != hash) return true;
    }
  }
  return false;
}

// After a difference, the homes of the tensors find the box and its ranks from the hashes of all boxes.

using BoxKey = std::tuple<std::uint64_t, std::vector<std::uint64_t>, std::vector<std::uint64_t>>;

BoxKey key_of(const HeldReplica& held) { return {held.tensor, held.box->box.offset, held.box->box.shape}; }

/// A box whose replicas differ.
struct Difference {
  BoxKey box;
  std::uint64_t is_mixed = 0;
  int reference = 0;       ///< the lowest rank of the largest group with equal bytes
  int other = 0;           ///< the lowest rank with different bytes
  std::string same_words;  ///< the ranks of the largest group, in words
  std::string other_words;
};

/// "rank 3", "ranks 3 and 5", "ranks 3, 5 and 12 more".
std::string words_of(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() == 2) return fmt::format("ranks {} and {}", ranks[0], ranks[1]);
  return fmt::format("ranks {}, {} and {} more", ranks[0], ranks[1], ranks.size() - 2);
}

struct Holder {
  int rank = 0;
  std::uint64_t hash = 0;
};

/// The difference between the holders of a box; nothing if all hashes are equal. `holders` ascend by rank.
std::optional<Difference> find_difference(std::span<const Holder> holders) {
  std::map<std::uint64_t, std::vector<int>> by_hash;
  for (const Holder& holder : holders) by_hash[holder.hash].push_back(holder.rank);
  if (by_hash.size() == 1) return std::nullopt;
  const auto most = std::ranges::max_element(by_hash, [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
  });
  std::vector<int> others;
  for (const Holder& holder : holders) {
    if (holder.hash != most->first) others.push_back(holder.rank);
  }
  Difference found;
  found.reference = most->second.front();
  found.other = others.front();
  found.same_words = words_of(most->second);
  found.other_words = words_of(others);
  return found;
}

comm::Messages hashes_to_homes(std::span<const HeldReplica> replicas, std::span<const std::uint64_t> hashes,
                               int ranks) {
  comm::MessageWriter out(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const HeldReplica& held = replicas[i];
    out.u64(held.tensor);
    out.u64s(held.box->box.offset);
    out.u64s(held.box->box.shape);
    out.u64(held.is_mixed ? 1 : 0);
    out.u64(hashes[i]);
    out.close(held.tensor % static_cast<std::uint64_t>(ranks));
  }
  return out.take();
}

/// At a home: for each tensor with differences, the first box that differs.
std::map<std::uint64_t, Difference> find_differences(const comm::Messages& messages) {
  struct Held {
    std::uint64_t is_mixed = 0;
    std::vector<Holder> holders;
  };
  std::map<BoxKey, Held> boxes;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    for (comm::MessageReader in(messages[rank]); !in.done();) {
      const std::uint64_t tensor = in.u64();
      std::vector<std::uint64_t> offset = in.u64s();
      std::vector<std::uint64_t> shape = in.u64s();
      Held& held = boxes[{tensor, std::move(offset), std::move(shape)}];
      held.is_mixed = in.u64();
      held.holders.push_back({static_cast<int>(rank), in.u64()});
    }
  }
  std::map<std::uint64_t, Difference> differences;
  for (const auto& [key, held] : boxes) {
    auto found = find_difference(held.holders);
    if (!found) continue;
    found->box = key;
    found->is_mixed = held.is_mixed;
    differences.try_emplace(std::get<0>(key), std::move(*found));
  }
  return differences;
}

/// The result for the tensors of all ranks.
struct Verdict {
  bool is_refused = false;
  std::uint64_t tensor = kNone;  ///< tensor to name: the first (or first mixed) that differs; kNone: no box does
  std::uint64_t others = 0;      ///< number of other tensors that differ
};

/// Collective.
Verdict judge(comm::Communicator& communicator, const std::map<std::uint64_t, Difference>& differences,
              ReplicasDiffer action) {
  std::array<std::uint64_t, 2> first = {kNone, kNone};  // first mixed tensor, and first other tensor
  std::array<std::uint64_t, 2> count = {0, 0};
  for (const auto& [tensor, difference] : differences) {
    const std::size_t kind = difference.is_mixed != 0 ? 0 : 1;
    first[kind] = std::min(first[kind], tensor);
    ++count[kind];
  }
  communicator.all_reduce(std::span<std::uint64_t>(first), comm::ReduceOp::kMin);
  communicator.all_reduce(std::span<std::uint64_t>(count), comm::ReduceOp::kSum);
  const std::uint64_t all = count[0] + count[1];
  if (all == 0) return {};
  if (action == ReplicasDiffer::kRefuseMixture && count[0] != 0) return {true, first[0], count[0] - 1};
  return {action == ReplicasDiffer::kRefuse, std::min(first[0], first[1]), all - 1};
}

base::Bytes encode(const Difference& difference) {
  base::ByteWriter out;
  out.u64(std::get<0>(difference.box));
  out.u64s(std::get<1>(difference.box));
  out.u64s(std::get<2>(difference.box));
  out.u64(difference.is_mixed);
  out.u64(static_cast<std::uint64_t>(difference.reference));
  out.u64(static_cast<std::uint64_t>(difference.other));
  out.text(difference.same_words);
  out.text(difference.other_words);
  return out.take();
}

Difference decode(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  Difference difference;
  const std::uint64_t tensor = in.u64();
  std::vector<std::uint64_t> offset = in.u64s();
  difference.box = {tensor, std::move(offset), in.u64s()};
  difference.is_mixed = in.u64();
  difference.reference = static_cast<int>(in.u64());
  difference.other = static_cast<int>(in.u64());
  difference.same_words = in.text();
  difference.other_words = in.text();
  return difference;
}

// Finds the place of the difference: the reference rank sends all ranks the checksums of its ranges,
// then the bytes of the first range that differs.

const HeldReplica& find_held(std::span<const HeldReplica> replicas, const BoxKey& box) {
  const auto at = std::ranges::find_if(replicas, [&](const HeldReplica& held) { return key_of(held) == box; });
  if (at == replicas.end()) throw base::internal_error("a rank is said to hold a box that it does not hold");
  return *at;
}

/// Checksum of each range of the sample.
base::Bytes checksums_of(const HeldReplica& held, const ReplicaComparison& what) {
  base::ByteWriter out;
  RangeReader reader(what.device, [&](std::size_t, std::span<const std::byte> bytes) {
    const std::uint32_t crc = format::crc32c(bytes);
    out.raw(&crc, sizeof crc);
  });
  const plan::Sample sample = sample_of(held, what);
  for (std::uint64_t i = 0; i < sample.size(); ++i) reader.read(i, *held.box, sample[i]);
  reader.finish();
  return out.take();
}

base::Bytes bytes_of(const HeldReplica& held, const plan::ByteRange& range, const ReplicaComparison& what) {
  base::Bytes all;
  RangeReader reader(what.device, [&](std::size_t, std::span<const std::byte> bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  });
  reader.read(0, *held.box, range);
  reader.finish();
  return all;
}

std::uint64_t first_mismatch(std::span<const std::byte> a, std::span<const std::byte> b) {
  return static_cast<std::uint64_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// "element [3, 5]": the element of the tensor at byte `at` of the box.
std::string element_words(const HeldReplica& held, std::uint64_t at) {
  const Box& box = held.box->box;
  std::vector<std::uint64_t> index = box.offset;
  std::uint64_t element = at * 8 / bits_of(held.source->dtype);
  for (std::size_t d = index.size(); d-- > 0;) {
    index[d] += element % box.shape[d];
    element /= box.shape[d];
  }
  return fmt::format("element [{}]", base::joined(index));
}

/// Collective: a description of the first difference.
std::string describe(comm::Communicator& communicator, const Difference& found, const ReplicaComparison& what) {
  const bool is_other = communicator.rank() == found.other;
  const HeldReplica* held = nullptr;
  base::Bytes reference;
  base::Bytes own;
  comm::agree(communicator, "look for the first difference", [&] {
    if (communicator.rank() != found.reference && !is_other) return;
    held = &find_held(what.replicas, found.box);
    (is_other ? own : reference) = checksums_of(*held, what);
  });
  communicator.share(reference, found.reference);
  std::uint64_t range = is_other ? first_mismatch(own, reference) / sizeof(std::uint32_t) : 0;
  communicator.broadcast(std::as_writable_bytes(std::span(&range, 1)), found.other);
  const bool has_changed = range * sizeof(std::uint32_t) >= reference.size();  // now equal: another thread writes to
                                                                               // the box
  reference = {};
  comm::agree(communicator, "look for the first difference", [&] {
    if (held == nullptr || has_changed) return;
    (is_other ? own : reference) = bytes_of(*held, sample_of(*held, what)[range], what);
  });
  communicator.share(reference, found.reference);
  std::string text;
  comm::agree(communicator, "name the first difference", [&] {
    if (!is_other) return;
    std::string place = "somewhere that has changed meanwhile";
    if (!has_changed) {
      const std::uint64_t at = sample_of(*held, what)[range].begin + first_mismatch(own, reference);
      place = fmt::format("first at {}{}", element_words(*held, at),
                          what.checks.replicas == ReplicaCheck::kAll ? "" : " of those compared");
    }
    const Source& source = *held->source;
    text = fmt::format("tensor '{}' (section {}): its replicas differ, on {} from those on {}, {}",
                       base::printable(source.name), base::printable(source.section), found.other_words,
                       found.same_words, place);
  });
  communicator.share(text, found.other);
  return text;
}

}  // namespace

void add_replicas(std::span<const plan::Replica> replicas, std::span<const plan::MemoryBox> boxes,
                  std::span<const Source> sources, std::vector<HeldReplica>& held) {
  held.reserve(held.size() + replicas.size());
  for (const plan::Replica& replica : replicas) {
    const plan::MemoryBox& box = boxes[replica.local];
    held.push_back({&box, &sources[box.tensor], replica.tensor, replica.holders, replica.is_mixed});
  }
}

plan::SampleRule agree_on_sample(comm::Communicator& communicator, std::span<const HeldReplica> replicas) {
  std::uint64_t places = 0;
  comm::agree(communicator, "measure the replicas", [&] {
    std::vector<std::uint64_t> bytes;
    bytes.reserve(replicas.size());
    for (const HeldReplica& held : replicas) bytes.push_back(plan::own_bytes(*held.box));
    places = plan::sample_rule(bytes).places;
  });
  return plan::rule_of_places(communicator.min(places));
}

std::string compare_replicas(comm::Communicator& communicator, const ReplicaComparison& what) {
  const int ranks = communicator.size();
  std::vector<std::uint64_t> hashes;
  comm::Messages messages;
  comm::agree(communicator, "compare replicas", [&] {
    hashes = hash_boxes(what);
    messages = hash_sets(what.replicas, hashes, ranks);
  });
  messages = communicator.all_to_all(std::move(messages));
  std::uint64_t differ = 0;
  comm::agree(communicator, "compare replicas", [&] { differ = do_sets_differ(messages) ? 1 : 0; });
  if (communicator.max(differ) == 0) return {};

  comm::agree(communicator, "look for replicas that differ",
              [&] { messages = hashes_to_homes(what.replicas, hashes, ranks); });
  messages = communicator.all_to_all(std::move(messages));
  std::map<std::uint64_t, Difference> differences;
  comm::agree(communicator, "look for replicas that differ", [&] { differences = find_differences(messages); });
  messages = {};
  const Verdict verdict = judge(communicator, differences, what.checks.replicas_differ);
  if (verdict.tensor == kNone) return {};
  const int home = static_cast<int>(verdict.tensor % static_cast<std::uint64_t>(ranks));
  base::Bytes first;
  comm::agree(communicator, "look for replicas that differ", [&] {
    if (communicator.rank() == home) first = encode(differences.at(verdict.tensor));
  });
  communicator.share(first, home);
  Difference found;
  comm::agree(communicator, "look for replicas that differ", [&] { found = decode(first); });
  std::string text = describe(communicator, found, what);
  comm::agree(communicator, "look for replicas that differ", [&] {
    if (verdict.others != 0) text += "; so do those of " + base::counted(verdict.others, "more tensor");
    const char* const mixture =
        verdict.is_refused ? "; the checkpoint would be a mixture" : "; what is saved is a mixture";
    text += found.is_mixed != 0 ? mixture : "; all bytes saved are one rank's";
    if (verdict.is_refused) text += ": make them the same, or choose another Checks::replicas_differ";
  });
  if (verdict.is_refused) throw comm::AgreedError(ErrorKind::kState, text);
  return text;
}

}  // namespace cairn::checkpoint
