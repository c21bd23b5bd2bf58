// Rounds on a thread: in order, while the caller continues; a failure is kept, and later rounds are dropped.
#include "io/rounds.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

namespace cairn::io {
namespace {

TEST(RoundWorker, DoesRoundsInOrderOnItsOwnThread) {
  std::vector<int> done;
  std::thread::id worker_thread;
  RoundWorker worker;
  for (int round = 0; round < 100; ++round) {
    worker.begin([&done, &worker_thread, round] {
      done.push_back(round);
      worker_thread = std::this_thread::get_id();
    });
  }
  worker.wait(0);
  ASSERT_EQ(done.size(), 100U);
  for (int round = 0; round < 100; ++round) EXPECT_EQ(done[static_cast<std::size_t>(round)], round);
  EXPECT_NE(worker_thread, std::this_thread::get_id());
  worker.rethrow();
}

TEST(RoundWorker, TheCallerGoesOnWhileARoundIsUnderWay) {
  std::promise<void> go;
  std::atomic<int> done = 0;
  RoundWorker worker;
  worker.begin([&] { ++done; });
  worker.begin([&, may_end = go.get_future().share()] {
    may_end.wait();
    ++done;
  });
  worker.begin([&] { ++done; });
  worker.wait(2);  // would not return if it waited for all
  EXPECT_EQ(done, 1);
  go.set_value();
  worker.wait(0);
  EXPECT_EQ(done, 3);
}

TEST(RoundWorker, AFailureIsKeptAndDropsWhatComesAfter) {
  std::atomic<int> done = 0;
  RoundWorker worker;
  worker.begin([] { throw std::runtime_error("the first"); });
  worker.begin([] { throw std::runtime_error("the second"); });
  worker.begin([&] { ++done; });
  worker.wait(0);
  worker.begin([&] { ++done; });
  worker.wait(0);
  for (int again = 0; again < 2; ++again) {
    try {
      worker.rethrow();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the first");
    }
  }
  EXPECT_EQ(done, 0);
}

TEST(RoundWorker, IsDestroyedWithRoundsLeftOver) {
  std::promise<void> begun;
  std::promise<void> go;
  std::atomic<int> done = 0;
  std::thread helper;
  {
    RoundWorker worker;
    worker.begin([&, may_end = go.get_future().share()] {
      begun.set_value();
      may_end.wait();
      ++done;
    });
    for (int round = 0; round < 10; ++round) worker.begin([&] { done += 100; });
    begun.get_future().wait();
    helper = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go.set_value();
    });
  }
  helper.join();
  EXPECT_EQ(done % 100, 1);  // the destructor waited for the round in progress
  EXPECT_EQ(done, 1);        // the other rounds were dropped: none began after the destructor
}

}  // namespace
}  // namespace cairn::io
