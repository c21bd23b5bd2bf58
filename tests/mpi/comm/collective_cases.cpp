#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cairn/error.hpp"
#include "comm_cases.hpp"

namespace cairn::test {
namespace {

using base::Bytes;
using comm::Communicator;
using comm::ReduceOp;

constexpr std::size_t kSizes[] = {0, 1, 7, 64};

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

void barriers(Communicator& communicator) {
  for (int i = 0; i < 5; ++i) communicator.barrier();
}

void broadcasts_from_each_rank(Communicator& communicator) {
  for (int root = 0; root < communicator.size(); ++root) {
    for (const std::size_t size : kSizes) {
      const Bytes expected = pattern(root, 1, size);
      Bytes data = communicator.rank() == root ? expected : Bytes(size);
      communicator.broadcast(data, root);
      EXPECT_EQ(data, expected) << "root " << root << " size " << size;
    }
  }
}

void reductions_of_integers(Communicator& communicator) {
  const auto me = static_cast<std::uint64_t>(communicator.rank());
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  constexpr std::uint64_t kHigh = 1ULL << 63;
  std::uint64_t all_xor = 0;
  std::uint64_t all_or = 0;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    all_xor ^= kHigh + rank * 5;
    all_or |= kHigh + rank * 5;
  }
  for (const std::size_t count : {0U, 1U, 9U}) {
    const auto reduce = [&](std::uint64_t value, ReduceOp op) {
      std::vector<std::uint64_t> values(count, value);
      communicator.all_reduce(std::span(values), op);
      return values;
    };
    EXPECT_EQ(reduce(me + 1, ReduceOp::kSum), std::vector(count, ranks * (ranks + 1) / 2));
    EXPECT_EQ(reduce(kHigh - me, ReduceOp::kMin), std::vector(count, kHigh - (ranks - 1)));
    EXPECT_EQ(reduce(kHigh + me, ReduceOp::kMax), std::vector(count, kHigh + ranks - 1));
    EXPECT_EQ(reduce(kHigh + me * 5, ReduceOp::kXor), std::vector(count, all_xor));
    EXPECT_EQ(reduce(kHigh + me * 5, ReduceOp::kOr), std::vector(count, all_or));
  }
  // Each place is reduced separately.
  std::vector<std::uint64_t> places;
  for (std::uint64_t place = 0; place < 21; ++place) places.push_back(place * 100 + me);
  communicator.all_reduce(std::span(places), ReduceOp::kMax);
  for (std::uint64_t place = 0; place < 21; ++place) EXPECT_EQ(places[place], place * 100 + ranks - 1);
}

void reductions_of_reals(Communicator& communicator) {
  const double me = communicator.rank();
  const double ranks = communicator.size();
  std::vector<double> values = {me, me * 0.5, -me};
  communicator.all_reduce(std::span(values), ReduceOp::kSum);
  const double sum = ranks * (ranks - 1) / 2;
  EXPECT_EQ(values, (std::vector{sum, sum * 0.5, -sum}));
  values = {me, -me};
  communicator.all_reduce(std::span(values), ReduceOp::kMin);
  EXPECT_EQ(values, (std::vector{0.0, -(ranks - 1)}));
  values = {me, -me};
  communicator.all_reduce(std::span(values), ReduceOp::kMax);
  EXPECT_EQ(values, (std::vector{ranks - 1, 0.0}));
  EXPECT_THROW(communicator.all_reduce(std::span(values), ReduceOp::kXor), Error);
  EXPECT_THROW(communicator.all_reduce(std::span(values), ReduceOp::kOr), Error);
}

/// Runs all_to_all with size_of(from, to, ranks) bytes and compares every byte.
void exchange(Communicator& communicator, std::size_t (*size_of)(int from, int to, int ranks)) {
  const int ranks = communicator.size();
  const int me = communicator.rank();
  std::vector<Bytes> outgoing;
  for (int to = 0; to < ranks; ++to) outgoing.push_back(pattern(me, to, size_of(me, to, ranks)));
  const std::vector<Bytes> incoming = communicator.all_to_all(std::move(outgoing));
  ASSERT_EQ(incoming.size(), index(ranks));
  for (int from = 0; from < ranks; ++from) {
    EXPECT_EQ(incoming[index(from)], pattern(from, me, size_of(from, me, ranks))) << "from " << from;
  }
}

void all_to_all_patterns(Communicator& communicator) {
  exchange(communicator, [](int, int, int) { return std::size_t{0}; });
  exchange(communicator, [](int, int, int) { return std::size_t{16}; });
  exchange(communicator, [](int from, int to, int) { return index(from * 7 + to * 3) % 11; });  // some sizes are 0
  exchange(communicator,
           [](int from, int to, int ranks) { return index((from + 1) % ranks == to ? 100 : 0); });  // ring
  exchange(communicator, [](int from, int to, int) { return index(from == to ? 50 : 0); });         // to itself only
  exchange(communicator, [](int from, int, int) { return index(from == 0 ? 100 : 0); });            // from one only
  exchange(communicator, [](int, int to, int ranks) { return index(to == ranks - 1 ? 100 : 0); });  // to one only
  EXPECT_THROW(communicator.all_to_all(std::vector<Bytes>(index(communicator.size() + 1))), Error);
}

void gathers(Communicator& communicator) {
  const int ranks = communicator.size();
  const int me = communicator.rank();
  for (const std::size_t unit : {0U, 1U, 40U}) {
    std::vector<Bytes> expected;
    for (int rank = 0; rank < ranks; ++rank) expected.push_back(pattern(rank, 9, index((rank + 1) % 3) * unit));
    const Bytes& mine = expected[index(me)];
    EXPECT_EQ(communicator.all_gather(mine), expected);
    for (int root = 0; root < ranks; ++root) {
      EXPECT_EQ(communicator.gather(mine, root), me == root ? expected : std::vector<Bytes>());
    }
  }
}

void conveniences(Communicator& communicator) {
  const auto me = static_cast<std::uint64_t>(communicator.rank());
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  EXPECT_EQ(communicator.sum(me), ranks * (ranks - 1) / 2);
  EXPECT_EQ(communicator.max(me), ranks - 1);
  EXPECT_EQ(communicator.min(me + 3), 3U);
  EXPECT_EQ(communicator.min(std::numeric_limits<std::uint64_t>::max()), std::numeric_limits<std::uint64_t>::max());
  for (int root = 0; root < communicator.size(); ++root) {
    for (const std::size_t size : kSizes) {
      Bytes data = communicator.rank() == root ? pattern(root, 2, size) : Bytes(index(communicator.rank()) * 20);
      communicator.share(data, root);
      EXPECT_EQ(data, pattern(root, 2, size));
      std::string text = communicator.rank() == root ? std::string(size, 'x') : "left over";
      communicator.share(text, root);
      EXPECT_EQ(text, std::string(size, 'x'));
    }
  }
}

void roots_outside_the_group(Communicator& communicator) {
  Bytes data(4);
  for (const int root : {-1, communicator.size()}) {
    EXPECT_THROW(communicator.broadcast(data, root), Error);
    EXPECT_THROW(communicator.gather(data, root), Error);
  }
}

void duplicates(Communicator& communicator) {
  const auto first = communicator.duplicate();
  const auto second = first->duplicate();
  EXPECT_EQ(first->rank(), communicator.rank());
  EXPECT_EQ(second->size(), communicator.size());
  // The same tag on two communicators: messages do not mix, whatever the order of receiving.
  const int next = (communicator.rank() + 1) % communicator.size();
  const int previous = (communicator.rank() + communicator.size() - 1) % communicator.size();
  const Bytes to_first = pattern(communicator.rank(), 1, 8);
  const Bytes to_second = pattern(communicator.rank(), 2, 8);
  Bytes from_first(8);
  Bytes from_second(8);
  const auto send_first = first->send(to_first, next, 3);
  const auto send_second = second->send(to_second, next, 3);
  second->receive(from_second, previous, 3)->wait();
  first->receive(from_first, previous, 3)->wait();
  send_second->wait();
  send_first->wait();
  EXPECT_EQ(from_first, pattern(previous, 1, 8));
  EXPECT_EQ(from_second, pattern(previous, 2, 8));
}

void subgroups(Communicator& communicator) {
  const int ranks = communicator.size();
  const int me = communicator.rank();
  const auto alone = communicator.subgroup(me, me, 1);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->sum(7), 7U);

  const int half = ranks / 2;
  const bool is_low = me < half;
  const int first = is_low ? 0 : half;
  const int last = is_low ? half - 1 : ranks - 1;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the same group twice
    const auto part = communicator.subgroup(first, last, 2);
    EXPECT_EQ(part->size(), last - first + 1);
    EXPECT_EQ(part->rank(), me - first);
    EXPECT_EQ(part->max(static_cast<std::uint64_t>(me)), static_cast<std::uint64_t>(last));
    const auto inner = part->subgroup(part->rank() == 0 ? 0 : 1, part->rank() == 0 ? 0 : part->size() - 1, 3);
    EXPECT_EQ(inner->size(), part->rank() == 0 ? 1 : part->size() - 1);
    inner->barrier();
  }
  if (me == ranks - 1) {  // the other ranks do not call
    const auto one = communicator.subgroup(me, me, 4);
    one->barrier();
  }
  communicator.barrier();
  EXPECT_THROW(communicator.subgroup(0, ranks, 1), Error);
  EXPECT_THROW(communicator.subgroup(me + 1, ranks - 1, 1), Error);
}

}  // namespace

Bytes pattern(int from, int to, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t at = 0; at < size; ++at) {
    bytes[at] = static_cast<std::byte>(
        (static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 17 + at * 7) & 0xff);
  }
  return bytes;
}

std::vector<CommCase> collective_cases() {
  return {{"Barriers", barriers},
          {"BroadcastsFromEachRank", broadcasts_from_each_rank},
          {"ReductionsOfIntegers", reductions_of_integers},
          {"ReductionsOfReals", reductions_of_reals},
          {"AllToAllPatterns", all_to_all_patterns},
          {"Gathers", gathers},
          {"Conveniences", conveniences},
          {"RootsOutsideTheGroup", roots_outside_the_group},
          {"Duplicates", duplicates},
          {"Subgroups", subgroups}};
}

std::vector<CommCase> comm_cases() {
  std::vector<CommCase> all = collective_cases();
  for (const auto& more : {message_cases(), agree_cases(), shared_memory_cases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace cairn::test
