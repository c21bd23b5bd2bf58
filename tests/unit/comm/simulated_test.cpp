// Simulated ranks: the cases for all communicators, and cases only for threads (ranks that end, throw or deadlock).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/shared_memory.hpp"
#include "comm_cases.hpp"
#include "faults.hpp"
#include "simulated.hpp"
#include "soft_limit.hpp"

namespace cairn::comm {
namespace {

using base::Bytes;
using testing::HasSubstr;
using Parameter = std::tuple<test::CommCase, int>;

class SimulatedCommCases : public testing::TestWithParam<Parameter> {};

TEST_P(SimulatedCommCases, Pass) {
  const auto& [one, ranks] = GetParam();
  std::atomic<int> runs = 0;
  run_simulated(ranks, [&, run = one.run](Communicator& communicator) {
    run(communicator);
    ++runs;
  });
  EXPECT_EQ(runs, ranks);
}

INSTANTIATE_TEST_SUITE_P(ByRanks, SimulatedCommCases,
                         testing::Combine(testing::ValuesIn(test::comm_cases()), testing::Values(1, 2, 4, 7, 16)),
                         [](const testing::TestParamInfo<Parameter>& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "On" +
                                  std::to_string(std::get<1>(parameter.param));
                         });

/// The error of a run, as text.
std::string error_of(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    run_simulated(ranks, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(Simulated, TheOriginalErrorWinsOverThoseItCaused) {
  // Rank 0 waits for 1, 1 for 2, and so on; the last rank throws.
  const std::string text = error_of(5, [](Communicator& communicator) {
    Bytes byte(1);
    if (communicator.rank() == 4) throw std::runtime_error("the reason");
    communicator.receive(byte, communicator.rank() + 1, 0)->wait();
  });
  EXPECT_EQ(text, "the reason");
}

TEST(Simulated, TheLowestOfSeveralOriginalErrorsWins) {
  const std::string text = error_of(6, [](Communicator& communicator) {
    if (communicator.rank() >= 3) throw std::runtime_error("rank " + std::to_string(communicator.rank()));
    communicator.barrier();
  });
  EXPECT_EQ(text, "rank 3");
}

TEST(Simulated, WaitersForARankThatEndedAreWoken) {
  std::atomic<int> woken = 0;
  const auto expect_error = [&](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "waited for a rank that has ended";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      ++woken;
    }
  };
  run_simulated(5, [&](Communicator& communicator) {
    Bytes byte(1);
    switch (communicator.rank()) {
      case 0: return;
      case 1: return expect_error([&] { communicator.receive(byte, 0, 0)->wait(); });
      case 2: return expect_error([&] { communicator.send(byte, 0, 0)->wait(); });
      case 3: return expect_error([&] { communicator.barrier(); });
      default:
        return expect_error([&] {
          const auto request = communicator.receive(byte, 0, 1);
          while (!request->test()) std::this_thread::yield();
        });
    }
  });
  EXPECT_EQ(woken, 4);
}

TEST(Simulated, AFailureInsideASubgroupReachesTheOthers) {
  const std::string text = error_of(4, [](Communicator& communicator) {
    const int first = communicator.rank() < 2 ? 0 : 2;
    const auto half = communicator.subgroup(first, first + 1, 0);
    if (communicator.rank() == 1) throw std::runtime_error("in the lower half");
    half->barrier();
    communicator.barrier();
  });
  EXPECT_EQ(text, "in the lower half");
}

TEST(Simulated, DeadLocksAreDescribed) {
  const std::string text = error_of(3, [](Communicator& communicator) {
    Bytes bytes(3);
    if (communicator.rank() == 2) return communicator.barrier();
    communicator.receive(bytes, 1 - communicator.rank(), 7)->wait();
  });
  EXPECT_THAT(text, HasSubstr("all simulated ranks wait for each other"));
  EXPECT_THAT(text, HasSubstr("rank 0 in receive of 3 bytes from rank 1 to rank 0 with tag 7"));
  EXPECT_THAT(text, HasSubstr("rank 2 in barrier"));
}

TEST(Simulated, SendsDoNotCountOnBuffering) {
  const std::string text = error_of(2, [](Communicator& communicator) {
    Bytes bytes(3);
    communicator.send(bytes, 1 - communicator.rank(), 0)->wait();
    communicator.receive(bytes, 1 - communicator.rank(), 0)->wait();
  });
  EXPECT_THAT(text, HasSubstr("all simulated ranks wait for each other"));
}

TEST(Simulated, DifferentCollectivesAreAnError) {
  const std::string names = error_of(3, [](Communicator& communicator) {
    if (communicator.rank() == 1) return communicator.barrier();
    communicator.max(1);
  });
  EXPECT_THAT(names, HasSubstr("collective calls differ"));
  const std::string sizes = error_of(2, [](Communicator& communicator) {
    Bytes bytes(static_cast<std::size_t>(communicator.rank()) + 1);
    communicator.broadcast(bytes, 0);
  });
  EXPECT_THAT(sizes, HasSubstr("broadcast of 2 bytes from rank 0"));
}

TEST(Simulated, HelperThreadsUseADuplicate) {
  run_simulated(3, [](Communicator& communicator) {
    const auto own = communicator.duplicate();
    std::uint64_t behind = 0;
    std::thread helper([&] {
      for (int i = 0; i < 50; ++i) behind += own->sum(1);
    });
    std::uint64_t in_front = 0;
    for (int i = 0; i < 50; ++i) in_front += communicator.sum(2);
    helper.join();
    EXPECT_EQ(behind, 150U);
    EXPECT_EQ(in_front, 300U);
  });
}

TEST(Simulated, AgreementAndMessagesOnManyRanks) {
  constexpr int kRanks = 40;
  std::atomic<int> agreed = 0;
  run_simulated(kRanks, [&](Communicator& communicator) {
    try {
      agree(communicator, "step", [&] {
        if (communicator.rank() % 10 == 3) throw Error(ErrorKind::kIo, "disk " + std::to_string(communicator.rank()));
      });
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "disk 3 (ranks 3, 13 and 2 more)");
      ++agreed;
    }
    EXPECT_EQ(communicator.sum(1), static_cast<std::uint64_t>(kRanks));
  });
  EXPECT_EQ(agreed, kRanks);
}

TEST(Simulated, NeedsARank) {
  EXPECT_THROW(run_simulated(0, [](Communicator&) {}), Error);
}

TEST(SharedMemory, GetsItsPagesBetweenTwoSignals) {
  const test::Faults faults("windows.reserve:errno=EINTR:times=20");
  run_simulated(2, [](Communicator& communicator) {
    const SharedMemory memory(communicator, 4 << 20);
    memory.of(communicator.rank()).back() = std::byte{1};
  });
  EXPECT_EQ(os::fault_hits(), 20U);
}

TEST(SharedMemory, BeyondTheLimitOfFilesIsAnErrorAndNoSignal) {
  const test::SoftLimit limit(RLIMIT_FSIZE, 1 << 20);
  std::atomic<int> refused = 0;
  run_simulated(2, [&](Communicator& communicator) {
    try {
      const SharedMemory memory(communicator, 4 << 20);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("files of this process may have 1048576 bytes: raise the limit (ulimit -f)"));
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

using SimulatedDeathTest = testing::Test;

TEST(SimulatedDeathTest, AnAbandonedRequestAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto abandon = [] {
    run_simulated(2, [](Communicator& communicator) {
      Bytes byte(1);
      if (communicator.rank() == 0) communicator.receive(byte, 1, 0).reset();
      communicator.barrier();
    });
  };
  EXPECT_DEATH(abandon(), "receive of 1 bytes from rank 1 to rank 0 with tag 0 was abandoned");
}

}  // namespace
}  // namespace cairn::comm
