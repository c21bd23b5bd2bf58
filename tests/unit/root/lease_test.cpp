// The lease of a root as files: taken, renewed, released and lost, with simulated holders from other machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "cairn/error.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "manual_clock.hpp"
#include "os/process.hpp"
#include "root/lease.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using root::Lease;
using root::LeaseRecord;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr double kShort = 0.3;
/// The lease is renewed twice a second and does not expire even on a busy machine.
constexpr double kRenewedOften = 3;
/// A lease time that no test waits for; a test that does wait exceeds kFarBelowLong and fails.
constexpr double kLong = 100;
constexpr double kFarBelowLong = 40;

Lease::Setup setup(double seconds = kShort, std::optional<double> wait_seconds = std::nullopt) {
  return {.seconds = seconds, .wait_seconds = wait_seconds};
}

Lease::Setup setup_by(ManualClock& clock, double seconds) { return {.seconds = seconds, .clock = &clock}; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

fs::path epoch_file(const TempDir& root, int epoch) { return root / ".cairn" / ("epoch-" + std::to_string(epoch)); }

LeaseRecord record_in(const TempDir& root, int epoch) {
  const auto record = root::decode_lease(read_file(epoch_file(root, epoch)));
  EXPECT_TRUE(record) << epoch;
  return record.value_or(LeaseRecord{});
}

/// Writes a record as another machine would on a shared file system.
void write_foreign(const TempDir& root, int epoch, std::uint64_t sequence, const std::string& job = "",
                   std::uint64_t lease_ms = 300) {
  LeaseRecord record;
  record.holder = {
      {"elsewhere", "11111111-2222-3333-4444-555555555555", "pid:[9]", 4711, 99}, job, 0, "00112233aabbccdd", 0};
  record.holder.process.boot_id = os::this_process().boot_id;  // otherwise a local file system would prove it dead
  record.lease_ms = lease_ms;
  record.sequence = sequence;
  fs::create_directory(root / ".cairn");
  write_file(epoch_file(root, epoch), root::encode_lease(record));
}

std::string error_of_hold(Lease& lease) {
  return message_of_error(ErrorKind::kState, [&] { lease.hold(); });
}

TEST(Lease, NothingIsWrittenBeforeItIsHeld) {
  const TempDir root;
  { Lease lease(root.path(), setup()); }
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(Lease, IsTakenRenewedAndReleased) {
  const TempDir root;
  {
    ManualClock clock;
    Lease lease(root.path(), setup_by(clock, 3));
    EXPECT_EQ(lease.epoch(), 0U);
    lease.hold();
    EXPECT_EQ(lease.epoch(), 1U);
    const LeaseRecord first = record_in(root, 1);
    EXPECT_EQ(first.holder.process, os::this_process());
    EXPECT_EQ(first.holder.nonce, lease.nonce());
    EXPECT_EQ(first.lease_ms, 3000U);
    EXPECT_FALSE(first.is_released);
    for (std::uint64_t renewals = 1; renewals < 20; ++renewals) {
      clock.pass(milliseconds(499));
      EXPECT_EQ(record_in(root, 1).sequence, first.sequence + renewals - 1);
      clock.pass(milliseconds(1));
      EXPECT_EQ(record_in(root, 1).sequence, first.sequence + renewals);
    }
    lease.look();
    const std::uint64_t before = record_in(root, 1).sequence;
    lease.hold();
    EXPECT_EQ(record_in(root, 1).sequence, before + 1);
    EXPECT_EQ(lease.epoch(), 1U);
    EXPECT_EQ(lease.lost(), std::nullopt);
    EXPECT_TRUE(lease.take_warnings().empty());
  }
  EXPECT_TRUE(record_in(root, 1).is_released);
}

TEST(Lease, AReleasedOneIsTakenWithoutWaiting) {
  const TempDir root;
  Lease(root.path(), setup(kLong)).hold();
  const auto start = std::chrono::steady_clock::now();
  Lease next(root.path(), setup());
  next.hold();
  EXPECT_LT(seconds_since(start), kFarBelowLong);
  EXPECT_EQ(next.epoch(), 2U);
}

TEST(Lease, TheEpochIsAboveThoseOfTheManifests) {
  const TempDir root;
  Lease lease(root.path(), {.highest_saved_epoch = [] { return std::uint64_t{41}; }});
  lease.hold();
  EXPECT_EQ(lease.epoch(), 42U);
}

TEST(Lease, ALivingSaverIsNamed) {
  const TempDir root;
  Lease first(root.path(), setup(kRenewedOften));
  first.hold();
  Lease second(root.path(), setup());
  const std::string text = error_of_hold(second);
  EXPECT_THAT(text, HasSubstr(root.path().string()));
  EXPECT_THAT(text, HasSubstr("process " + std::to_string(::getpid()) + " on " + os::this_process().host));
  EXPECT_THAT(text, HasSubstr("in this process"));
  EXPECT_THAT(text, HasSubstr(" UTC"));
  first.look();
}

TEST(Lease, AnotherSaverOfThisProcessIsRefusedAtOnce) {
  const TempDir root;
  Lease first(root.path(), setup(60));
  first.hold();
  Lease second(root.path(), setup(60));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of_hold(second), HasSubstr("has another saver, in this process"));
  EXPECT_LT(seconds_since(start), 5);  // the lease is renewed every 10 s
}

/// The record is still marked as held, for example because marking it as released failed.
TEST(Lease, OfASaverOfThisProcessThatIsGoneIsTakenAtOnce) {
  const TempDir root;
  LeaseRecord record;
  record.holder = {os::this_process(), "", 0, "00112233aabbccdd", 0};
  record.lease_ms = 60'000;
  fs::create_directory(root / ".cairn");
  write_file(epoch_file(root, 1), root::encode_lease(record));
  Lease lease(root.path(), setup(60));
  const auto start = std::chrono::steady_clock::now();
  lease.hold();
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_EQ(lease.epoch(), 2U);
}

TEST(Lease, ANewLifeTakesTheNextEpochWithoutLettingGo) {
  const TempDir root;
  {
    Lease lease(root.path(), setup(60));
    lease.hold();
    lease.begin_life();
    EXPECT_FALSE(record_in(root, 1).is_released);
    Lease other(root.path(), setup(60));
    EXPECT_THAT(error_of_hold(other), HasSubstr("has another saver"));
    {
      const Faults faults("lease.take");
      EXPECT_THAT(message_of_error(ErrorKind::kIo, [&] { lease.hold(); }), HasSubstr("epoch-2"));
      lease.look();  // the previous epoch is still held
    }
    lease.hold();
    EXPECT_EQ(lease.epoch(), 2U);
    EXPECT_FALSE(record_in(root, 1).is_released);
    EXPECT_EQ(record_in(root, 2).holder.nonce, record_in(root, 1).holder.nonce);
    lease.hold();
    EXPECT_EQ(lease.epoch(), 2U) << "one epoch for one life";
    lease.look();
  }
  EXPECT_TRUE(record_in(root, 2).is_released);
}

TEST(Lease, ANewLifeAsksAnewForALeaseThatWasLost) {
  const TempDir root;
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, kShort));
  lease.hold();
  write_foreign(root, 2, 1);
  message_of_error(ErrorKind::kState, [&] { lease.look(); });
  EXPECT_THAT(error_of_hold(lease), HasSubstr("taken over"));
  lease.begin_life();
  lease.hold();  // after the other holder's lease time
  EXPECT_EQ(lease.epoch(), 3U);
  EXPECT_EQ(lease.lost(), std::nullopt);
}

TEST(Lease, WaitsForASaverThatEnds) {
  const TempDir root;
  auto first = std::make_unique<Lease>(root.path(), setup(kRenewedOften));
  first->hold();
  Lease second(root.path(), setup(kShort, kFarBelowLong));
  const auto start = std::chrono::steady_clock::now();
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(500));
    first.reset();
  });
  second.hold();
  end.join();
  EXPECT_GE(seconds_since(start), 0.5);
  EXPECT_EQ(second.epoch(), 2U);
}

TEST(Lease, AnExpiryIsWatchedInFullByTheObserversOwnClock) {
  const TempDir root;
  write_foreign(root, 7, 5);
  fs::last_write_time(epoch_file(root, 7), fs::file_time_type::clock::now() - std::chrono::hours(24));
  ManualClock clock;
  const auto start = clock.now();
  Lease lease(root.path(), setup_by(clock, kShort));
  lease.hold();
  EXPECT_GE(clock.now() - start, milliseconds(300));
  EXPECT_LT(clock.now() - start, milliseconds(400));
  EXPECT_EQ(lease.epoch(), 8U);
}

TEST(Lease, ObservingBeginsWithTheObject) {
  const TempDir root;
  write_foreign(root, 7, 5);
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, kShort));
  clock.pass(milliseconds(400));
  const Faults no_second_look("open:path=epoch-7:after=1");
  lease.hold();
}

TEST(Lease, ARenewalFromElsewhereIsRefused) {
  const TempDir root;
  write_foreign(root, 7, 5, "812", 30'000);
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, kShort));
  write_foreign(root, 7, 6, "812", 30'000);
  const std::string text = error_of_hold(lease);
  EXPECT_THAT(text, HasSubstr("process 4711 on elsewhere (job 812, since 1970-01-01 00:00:00 UTC)"));
  EXPECT_FALSE(fs::exists(epoch_file(root, 8)));
}

TEST(Lease, ADeadProcessOfThisMachineIsFoundAtOnce) {
  for (const char* rules : {"", "flock:errno=ENOLCK", "flock:errno=ENOTSUP"}) {
    const TempDir root;
    const Faults faults(rules);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Lease lease(root.path(), setup(kLong));
      lease.hold();
      ::_exit(0);  // no release, as after a kill
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_FALSE(record_in(root, 1).is_released);
    EXPECT_EQ(record_in(root, 1).is_locked, std::string(rules).empty());
    const auto start = std::chrono::steady_clock::now();
    Lease lease(root.path(), setup());
    lease.hold();
    EXPECT_LT(seconds_since(start), kFarBelowLong);
    EXPECT_EQ(lease.epoch(), 2U);
  }
}

TEST(Lease, AChildOfForkDoesNotEndItsParentsLease) {
  const TempDir root;
  auto lease = std::make_unique<Lease>(root.path(), setup(kRenewedOften));
  lease->hold();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    lease.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(record_in(root, 1).is_released);
  Lease other(root.path(), setup());
  EXPECT_THAT(error_of_hold(other), HasSubstr("another saver"));  // the lock is still held, and the lease renewed
}

TEST(Lease, AHigherEpochStopsTheHolderForGood) {
  const TempDir root;
  Lease lease(root.path(), setup());
  lease.hold();
  write_foreign(root, 9, 1, "812");
  EXPECT_THAT(
      message_of_error(ErrorKind::kState, [&] { lease.look(); }),
      HasSubstr("another saver has taken over '" + root.path().string() + "': process 4711 on elsewhere (job 812"));
  EXPECT_TRUE(lease.lost());
  fs::remove(epoch_file(root, 9));
  EXPECT_THAT(error_of_hold(lease), HasSubstr("taken over"));
}

/// The epoch number is the same, but the owner is not.
TEST(Lease, OfARootThatWasBegunAnewIsAnotherSavers) {
  const TempDir root;
  Lease first(root.path(), setup(kLong));
  first.hold();
  fs::remove_all(root / ".cairn");
  Lease second(root.path(), setup(kLong));
  second.hold();
  EXPECT_EQ(second.epoch(), first.epoch());
  EXPECT_THAT(message_of_error(ErrorKind::kState, [&] { first.look(); }), HasSubstr("another saver has taken over"));
  EXPECT_TRUE(first.lost());
  second.look();
}

TEST(Lease, WhatCameBackAfterItWasLostIsNobodyElses) {
  const TempDir root;
  Lease lease(root.path(), setup(kLong));
  lease.hold();
  fs::rename(root / ".cairn", root / "hidden");
  EXPECT_THAT(message_of_error(ErrorKind::kState, [&] { lease.look(); }), HasSubstr("is gone"));
  fs::rename(root / "hidden", root / ".cairn");
  lease.begin_life();
  lease.hold();
  EXPECT_EQ(lease.epoch(), 2U);
  lease.look();
}

TEST(Lease, AnEpochThatLeavesNoRoomIsNone) {
  for (const char* name : {"epoch-18446744073709551615", "epoch-18446744073709551614", "epoch-9007199254740993"}) {
    const TempDir root;
    fs::create_directory(root / ".cairn");
    write_file(root / ".cairn" / name, "");
    Lease lease(root.path(), setup(kLong));
    lease.hold();
    EXPECT_EQ(lease.epoch(), 1U) << name;
  }
}

TEST(Lease, ALeaseThatSomebodyRemovedIsLost) {
  for (const char* removed : {".cairn/epoch-1", ".cairn"}) {
    const TempDir root;
    Lease lease(root.path(), setup());
    lease.hold();
    fs::remove_all(root / removed);
    EXPECT_THAT(message_of_error(ErrorKind::kState, [&] { lease.look(); }), HasSubstr("is gone"));
  }
}

TEST(Lease, OneThatRanOutIsNotWorkedUnderAndIsTakenAnew) {
  const TempDir root;
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, 60));
  lease.hold();
  const Faults faults("lease.renew");
  clock.pass(std::chrono::seconds(59));
  lease.look();
  clock.pass(std::chrono::seconds(1));
  EXPECT_THAT(message_of_error(ErrorKind::kState, [&] { lease.look(); }),
              testing::AllOf(HasSubstr("ran out"), HasSubstr("Input/output error"), HasSubstr("save again")));
  EXPECT_EQ(lease.lost(), std::nullopt);
  lease.hold();
  EXPECT_EQ(lease.epoch(), 2U);
  EXPECT_FALSE(lease.is_root_cleared());
  lease.look();
}

TEST(Lease, ARenewalThatComesTooLateChangesNothing) {
  const TempDir root;
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, 60));
  lease.hold();
  {
    const Faults faults("lease.renew");
    clock.pass(std::chrono::seconds(60));
  }
  const std::uint64_t before = record_in(root, 1).sequence;
  clock.pass(std::chrono::seconds(10));
  EXPECT_EQ(record_in(root, 1).sequence, before + 1);
  EXPECT_THAT(message_of_error(ErrorKind::kState, [&] { lease.look(); }), HasSubstr("ran out"));
}

TEST(Lease, ARenewalThatFailsIsReported) {
  const TempDir root;
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, 60));
  lease.hold();
  {
    const Faults faults("write:path=epoch-1:times=1");
    clock.pass(std::chrono::seconds(10));
    EXPECT_EQ(os::fault_hits(), 1U);
  }
  lease.look();
  const auto warnings = lease.take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("Input/output error"));
  EXPECT_TRUE(lease.take_warnings().empty());
  const Faults faults("write:path=epoch-1");
  EXPECT_THAT(message_of_error(ErrorKind::kIo, [&] { lease.hold(); }), HasSubstr("cannot be renewed"));
}

TEST(Lease, OneThatCannotBeWrittenIsNotHeldAndLeavesNothing) {
  for (const char* rule :
       {"open:path=epoch-1", "write:path=epoch-1:errno=ENOSPC", "close:path=epoch-1", "lease.take"}) {
    const TempDir root;
    Lease lease(root.path(), setup());
    {
      const Faults faults(rule);
      message_of_error(ErrorKind::kIo, [&] { lease.hold(); });
    }
    EXPECT_FALSE(fs::exists(epoch_file(root, 1))) << rule;
    lease.hold();
    EXPECT_EQ(lease.epoch(), 1U) << rule;
  }
}

/// The lease's own record, which could be neither written nor removed, is not mistaken for another saver's.
TEST(Lease, OneThatCannotBeTakenAnewIsNotLostToItself) {
  const TempDir root;
  ManualClock clock;
  Lease lease(root.path(), setup_by(clock, 60));
  lease.hold();
  clock.pass(std::chrono::seconds(60));
  {
    const Faults faults("lease.taken;unlink:path=epoch-2");
    message_of_error(ErrorKind::kIo, [&] { lease.hold(); });
    EXPECT_TRUE(fs::exists(epoch_file(root, 2)));
    message_of_error(ErrorKind::kIo, [&] { lease.look(); });
  }
  {  // removing it may take long: other calls do not wait for that
    const TempDir signals;
    const Faults faults("unlink:path=epoch-2:times=1:pause=" + (signals / "go").string());
    auto looks = std::async(std::launch::async, [&] { message_of_error(ErrorKind::kState, [&] { lease.look(); }); });
    wait_until_paused(signals / "go");
    auto epoch = std::async(std::launch::async, [&] { return lease.epoch(); });
    EXPECT_EQ(epoch.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    write_file(signals / "go", "");
    looks.get();
  }
  EXPECT_EQ(lease.lost(), std::nullopt);
  lease.hold();
  EXPECT_EQ(lease.epoch(), 2U);
  lease.look();
}

TEST(Lease, OfManyWhoWantItOneGetsIt) {
  const TempDir root;
  constexpr int kSavers = 8;
  std::vector<std::unique_ptr<Lease>> leases;
  for (int n = 0; n < kSavers; ++n) leases.push_back(std::make_unique<Lease>(root.path(), setup(1)));
  std::atomic<int> held = 0;
  std::vector<std::thread> threads;
  for (const auto& lease : leases) {
    threads.emplace_back([&held, &lease] {
      try {
        lease->hold();
        ++held;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kState) << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(held, 1);
}

TEST(Lease, OldEpochsAreForgotten) {
  const TempDir root;
  for (int life = 0; life < 20; ++life) {
    Lease lease(root.path(), setup());
    lease.hold();
  }
  EXPECT_FALSE(fs::exists(epoch_file(root, 3)));
  EXPECT_TRUE(fs::exists(epoch_file(root, 5)));
  EXPECT_TRUE(fs::exists(epoch_file(root, 20)));
}

TEST(Lease, TimesThatMakeNoSenseAreRefused) {
  const TempDir root;
  for (const double seconds : {0.0, -1.0, 3601.0, std::nan("")}) {
    message_of_error(ErrorKind::kUsage, [&] { Lease(root.path(), setup(seconds)); });
  }
  message_of_error(ErrorKind::kUsage, [&] { Lease(root.path(), setup(1, -1)); });
}

}  // namespace
}  // namespace cairn::test
