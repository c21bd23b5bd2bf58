// The ranks' knowledge of each other, tested without real ranks: time is a number, and a heartbeat copies a table.
#include "comm/heartbeats.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/hosts.hpp"
#include "simulated.hpp"

namespace cairn::comm {
namespace {

using namespace std::chrono_literals;
using Clock = Heartbeats::Clock;

const Clock::time_point kStart = Clock::time_point(1h);

/// A group of ranks that all see the same clock.
class Ranks {
 public:
  explicit Ranks(int size) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Heartbeats>(rank, size, now_));
  }
  Heartbeats& operator[](int rank) { return *ranks_.at(static_cast<std::size_t>(rank)); }
  void pass(Clock::duration time) { now_ += time; }
  /// One rank sends a heartbeat to another; true if the receiver learns that some rank made progress.
  bool beat(int from, int to) {
    (*this)[from].beat(now_);
    return pass_on(from, to);
  }
  bool pass_on(int from, int to) { return (*this)[to].merge((*this)[from].bytes(), now_); }
  void all(const std::function<void(Heartbeats&)>& work) {
    for (const auto& rank : ranks_) work(*rank);
  }
  void begin_call() {
    all([](Heartbeats& rank) { rank.begin_call(); });
  }
  void enter(std::string_view phase, std::string_view step = {}) {
    all([&](Heartbeats& rank) {
      rank.enter_phase(phase);
      if (!step.empty()) rank.enter_step(step);
    });
  }
  void meet() {
    all([&](Heartbeats& rank) { rank.meet(now_); });
  }
  /// The rank's message about the ranks from which it has not heard in the last 10 s.
  std::string missing(int rank, const Hosts* hosts = nullptr) { return (*this)[rank].missing(now_ - 10s, now_, hosts); }
  [[nodiscard]] Clock::time_point now() const { return now_; }

 private:
  Clock::time_point now_ = kStart;
  std::vector<std::unique_ptr<Heartbeats>> ranks_;
};

/// Hosts "node00", "node01" and so on, with two ranks each.
Hosts pairs(std::uint32_t ranks) {
  std::string names;
  std::vector<std::uint32_t> begins;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (rank % 2 == 0) (names += "node0" + std::to_string(rank / 2)).push_back('\0');
    begins.push_back(static_cast<std::uint32_t>(7 * (rank / 2)));
  }
  return {names, begins};
}

TEST(Heartbeats, ABeatSaysWhoLivesAndWhere) {
  Ranks ranks(3);
  ranks.begin_call();
  ranks.enter("write", "write data files");
  ranks.pass(60s);
  ranks.beat(1, 0);
  EXPECT_EQ(ranks.missing(0), "rank 2 of 3 is missing, not heard of in this call");
  ranks.pass(312s);
  ranks.beat(2, 0);
  EXPECT_EQ(ranks.missing(0),
            "rank 1 of 3 is missing, last heard of in phase 'write', step 'write data files' 312 s ago");
}

TEST(Heartbeats, TablesMergeAndWhatIsNewerWins) {
  Ranks ranks(3);
  ranks.begin_call();
  ranks.enter("read");
  ranks.enter("write");
  ranks[2].move();
  EXPECT_TRUE(ranks.beat(2, 1));   // has moved
  EXPECT_FALSE(ranks.beat(2, 1));  // alive, but has not moved
  EXPECT_FALSE(ranks.pass_on(2, 1));
  ranks.pass(20s);
  EXPECT_TRUE(ranks.pass_on(1, 0));  // by way of rank 1
  EXPECT_EQ(ranks.missing(0), "rank 1 of 3 is missing, not heard of in this call");
  ranks[2].enter_phase("read");
  ranks[2].move();
  EXPECT_TRUE(ranks.beat(2, 0));
  EXPECT_FALSE(ranks.pass_on(1, 0));  // older news of rank 2
  ranks.pass(20s);
  ranks.beat(1, 0);
  EXPECT_EQ(ranks.missing(0), "rank 2 of 3 is missing, last heard of in phase 'read' 20 s ago");
  ranks.beat(2, 0);
  EXPECT_EQ(ranks.missing(0), "every rank waits, and none for the same");
}

TEST(Heartbeats, AMeetingIsNewsOfAllRanksWithoutAnyBeat) {
  Ranks ranks(2);
  ranks.begin_call();
  ranks.enter("plan", "plan the exchange");
  ranks.pass(20s);
  EXPECT_EQ(ranks.missing(0), "rank 1 of 2 is missing, not heard of in this call");
  ranks.meet();
  ranks[0].enter_phase("write");
  ranks.pass(30s);
  EXPECT_EQ(ranks.missing(0),
            "rank 1 of 2 is missing, last heard of in phase 'plan', step 'plan the exchange' 30 s ago");
  ranks[1].enter_phase("write");  // more recent than the meeting
  ranks.beat(1, 0);
  ranks.pass(11s);
  EXPECT_EQ(ranks.missing(0), "rank 1 of 2 is missing, last heard of in phase 'write' 11 s ago");
}

TEST(Heartbeats, ABeatThatComesAfterAMeetingButIsOlderSaysNothing) {
  Ranks ranks(3);
  ranks.begin_call();
  ranks.enter("plan");
  ranks.beat(2, 1);  // arrives late at rank 0
  ranks.enter("write");
  ranks.meet();
  ranks.pass_on(1, 0);
  ranks.pass(20s);
  ranks.beat(1, 0);
  EXPECT_EQ(ranks.missing(0), "rank 2 of 3 is missing, last heard of in phase 'write' 20 s ago");
}

TEST(Heartbeats, WhatWasHeardInTheCallBeforeIsForgotten) {
  Ranks ranks(2);
  ranks.begin_call();
  ranks.enter("commit");
  ranks.meet();
  ranks[1].beat(ranks.now());  // at the end of the call
  ranks.begin_call();
  ranks.pass_on(1, 0);
  ranks.enter("plan");
  ranks.pass(20s);
  EXPECT_EQ(ranks.missing(0), "rank 1 of 2 is missing, not heard of in this call");
}

TEST(Heartbeats, APhaseTakesTheStepBack) {
  Ranks ranks(2);
  ranks.begin_call();
  ranks.enter("plan", "plan the exchange");
  ranks.enter("write");
  ranks.meet();
  ranks.pass(20s);
  EXPECT_EQ(ranks.missing(0), "rank 1 of 2 is missing, last heard of in phase 'write' 20 s ago");
}

TEST(Heartbeats, APlaceWhereThisRankWasNotHasNoName) {
  Ranks ranks(2);
  ranks.begin_call();
  ranks[0].enter_phase("write");
  ranks[1].enter_phase("fsync");
  ranks.beat(1, 0);
  ranks.pass(20s);
  EXPECT_EQ(ranks.missing(0), "rank 1 of 2 is missing, last heard of 20 s ago");
}

TEST(Heartbeats, OldPlacesAreForgottenAndTheLastOnesAreNot) {
  Ranks ranks(2);
  ranks.begin_call();
  for (int i = 0; i < 1000; ++i) {
    ranks.enter("phase " + std::to_string(i));
    ranks.meet();
  }
  ranks.pass(20s);
  EXPECT_EQ(ranks.missing(0), "rank 1 of 2 is missing, last heard of in phase 'phase 999' 20 s ago");
}

TEST(Heartbeats, ManyRanksAreGroupedByHostAndPlace) {
  const Hosts hosts = pairs(12);
  Ranks ranks(12);
  ranks.begin_call();
  ranks.enter("fsync");
  ranks.pass(20s);
  for (const int rank : {1, 4, 5, 6, 7, 8, 9, 10, 11}) ranks.beat(rank, 0);
  EXPECT_EQ(ranks.missing(0, &hosts), "ranks 2, 3 of 12 (node01) are missing, not heard of in this call");
  ranks.beat(2, 0);
  ranks.beat(3, 0);
  ranks.enter("commit");
  ranks.beat(1, 0);
  ranks.pass(30s);
  for (const int rank : {8, 9, 10, 11}) ranks.beat(rank, 0);
  EXPECT_EQ(ranks.missing(0, &hosts),
            "7 of 12 ranks are missing: 1 (node00) last heard of in phase 'commit' 30 s ago; 2, 3 (node01) last heard "
            "of in phase 'fsync' 30 s ago; 4, 5 (node02) last heard of in phase 'fsync' 30 s ago; and 2 more");
  ranks.meet();
  ranks.pass(20s);
  EXPECT_EQ(ranks.missing(0), "ranks 1-11 of 12 are missing, last heard of in phase 'commit' 20 s ago");
}

TEST(Heartbeats, AMessageOfManyMissingRanksIsShort) {
  constexpr int kRanks = 16384;
  Ranks ranks(3);
  Heartbeats alone(0, kRanks, ranks.now());
  EXPECT_EQ(alone.bytes().size(), 12U * kRanks);
  std::vector<std::uint32_t> begins;  // even ranks are on one host, odd ranks on another
  std::string names(64, 'h');
  names += '\0' + std::string(64, 'i') + '\0';
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) begins.push_back(rank % 2 * 65);
  const Hosts hosts(names, begins);
  alone.enter_phase(std::string(100, '\n'));
  alone.enter_step(std::string(100, 's'));
  alone.meet(ranks.now());
  const std::string text = alone.missing(ranks.now() + 1s, ranks.now() + 20s, &hosts);
  EXPECT_LT(text.size(), 700U) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_TRUE(text.starts_with("16383 of 16384 ranks are missing: 1, 3, 5, 7, 9, 11, 13, 15 and 8184 more (iii"))
      << text;
  EXPECT_TRUE(text.ends_with("; and 8191 more")) << text;
}

TEST(Hosts, EveryRankKnowsTheHostOfEveryRank) {
  const std::string given[] = {"node\n0", "node\n0", "b", std::string(100, 'x'), "b"};
  const std::string expected[] = {"node\\x0a0", "node\\x0a0", "b", std::string(kHostBytes, 'x') + "...", "b"};
  for (const int size : {1, 2, 5}) {
    run_simulated(size, [&](Communicator& communicator) {
      const Hosts hosts = exchange_hosts(communicator, given[communicator.rank()]);
      ASSERT_EQ(hosts.ranks(), static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(hosts.of(rank), expected[rank]);
    });
  }
}

}  // namespace
}  // namespace cairn::comm
