// The rules for taking a lease, with a simulated clock and simulated holders.
#include <gtest/gtest.h>

#include "root/lease_rules.hpp"

namespace cairn::checkpoint {
namespace {

using namespace std::chrono_literals;
using State = root::LeaseWatch::State;

os::ProcessName process_on(const char* host, std::uint64_t pid) {
  return {host, std::string("boot-of-") + host, "pid:[1]", pid, 1000 + pid};
}

root::LeaseRecord record_of(std::uint64_t sequence, std::uint64_t lease_ms = 60'000) {
  root::LeaseRecord record;
  record.holder = {process_on("n1", 7), "45", 2, "0123456789abcdef", 1'763'819'731};
  record.lease_ms = lease_ms;
  record.sequence = sequence;
  record.is_locked = true;
  return record;
}

root::LeaseSighting sighting(std::uint64_t epoch, const root::LeaseRecord& record) {
  return {epoch, root::encode_lease(record), false};
}

TEST(LeaseRecord, ComesBack) {
  root::LeaseRecord record = record_of(17);
  record.is_released = true;
  const std::string text = root::encode_lease(record);
  EXPECT_EQ(text.size(), root::kLeaseRecordBytes);
  const auto read = root::decode_lease(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->holder.process, record.holder.process);
  EXPECT_EQ(read->holder.job_id, "45");
  EXPECT_EQ(read->holder.restarts, 2U);
  EXPECT_EQ(read->holder.nonce, record.holder.nonce);
  EXPECT_EQ(read->holder.since_s, record.holder.since_s);
  EXPECT_EQ(read->lease_ms, 60'000U);
  EXPECT_EQ(read->sequence, 17U);
  EXPECT_TRUE(read->is_released);
  EXPECT_TRUE(read->is_locked);
}

TEST(LeaseRecord, EmptyTextsAndLongOrStrangeNamesComeBackOnOneLine) {
  root::LeaseRecord record;
  EXPECT_TRUE(root::decode_lease(root::encode_lease(record)));
  record.holder.process.host = std::string(5000, 'h');
  EXPECT_EQ(root::encode_lease(record).size(), root::kLeaseRecordBytes);
  EXPECT_TRUE(root::decode_lease(root::encode_lease(record)));
  record.holder.process.host = "a\nstate released";
  const auto read = root::decode_lease(root::encode_lease(record));
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->is_released);
}

TEST(LeaseRecord, EveryChangedByteAndEveryLengthIsTorn) {
  const std::string text = root::encode_lease(record_of(17));
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string torn = text;
    torn[at] = static_cast<char>(torn[at] ^ 1);
    EXPECT_FALSE(root::decode_lease(torn)) << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, text.size() / 2, text.size() - 1}) {
    EXPECT_FALSE(root::decode_lease(text.substr(0, size)));
  }
  EXPECT_FALSE(root::decode_lease(text + " "));
}

TEST(LeaseRecord, TheHolderIsDescribed) {
  EXPECT_EQ(root::describe(record_of(1).holder),
            "process 7 on n1 (job 45 in its start 3, since 2025-11-22 13:55:31 UTC)");
  root::Holder alone = record_of(1).holder;
  alone.job_id.clear();
  EXPECT_EQ(root::describe(alone), "process 7 on n1 (since 2025-11-22 13:55:31 UTC)");
}

TEST(LeaseWatch, NothingIsKnownBeforeTheFirstLook) { EXPECT_EQ(root::LeaseWatch(60s).state(1h), State::kUnseen); }

TEST(LeaseWatch, ARootWithoutALeaseIsFree) {
  root::LeaseWatch watch(60s);
  watch.see({}, 5s);
  EXPECT_EQ(watch.state(5s), State::kFree);
}

TEST(LeaseWatch, AnUnchangedRecordRunsOutAfterTheTimeThatItStates) {
  root::LeaseWatch watch(1s);
  watch.see(sighting(3, record_of(17, 60'000)), 1000s);
  EXPECT_EQ(watch.state(1000s), State::kWatching);
  for (int s = 1; s < 60; ++s) {
    watch.see(sighting(3, record_of(17, 60'000)), 1000s + s * 1s);
    EXPECT_EQ(watch.state(1000s + s * 1s), State::kWatching) << s;
  }
  EXPECT_EQ(watch.state(1060s - 1ns), State::kWatching);
  EXPECT_EQ(watch.state(1060s), State::kFree);
}

TEST(LeaseWatch, OneLookAfterALongTimeIsEnoughWhenNothingChanged) {
  root::LeaseWatch watch(1s);
  watch.see(sighting(3, record_of(17)), 0s);
  watch.see(sighting(3, record_of(17)), 2h);
  EXPECT_EQ(watch.state(2h), State::kFree);
}

TEST(LeaseWatch, ARenewalIsASignOfLifeAndBeginsTheWatchAgain) {
  root::LeaseWatch watch(1s);
  watch.see(sighting(3, record_of(17)), 0s);
  watch.see(sighting(3, record_of(18)), 59s);
  EXPECT_EQ(watch.state(60s), State::kHeld);
  EXPECT_EQ(watch.state(118s), State::kHeld);
  EXPECT_EQ(watch.state(119s), State::kFree);
}

TEST(LeaseWatch, AChangeSinceALookOfLongAgoIsNoSignOfLife) {
  root::LeaseWatch renewed(1s);
  renewed.see(sighting(3, record_of(17)), 0s);
  renewed.see(sighting(3, record_of(18)), 60s);
  EXPECT_EQ(renewed.state(60s), State::kWatching);
  EXPECT_EQ(renewed.state(119s), State::kWatching);
  EXPECT_EQ(renewed.state(120s), State::kFree);

  root::LeaseWatch taken(1s);
  root::LeaseRecord released = record_of(17);
  released.is_released = true;
  taken.see(sighting(3, released), 0s);
  taken.see(sighting(4, record_of(1)), 1h);
  EXPECT_EQ(taken.state(1h), State::kWatching);
  taken.see(sighting(4, record_of(2)), 1h + 10s);
  EXPECT_EQ(taken.state(1h + 10s), State::kHeld);
}

TEST(LeaseWatch, ATornRecordIsARenewalAndNotAnAbsence) {
  root::LeaseWatch watch(1s);
  watch.see(sighting(3, record_of(17)), 0s);
  std::string torn = root::encode_lease(record_of(18));
  torn.resize(100);
  watch.see({3, torn, false}, 59s);
  EXPECT_EQ(watch.state(118s), State::kHeld);  // the previous record's lease time counts
  EXPECT_EQ(watch.state(119s), State::kFree);  // still torn: its writer is gone
}

TEST(LeaseWatch, ARecordThatCouldNeverBeReadIsWatchedForTheObserversOwnTime) {
  root::LeaseWatch watch(30s);
  watch.see({3, "", false}, 0s);
  EXPECT_EQ(watch.state(29s), State::kWatching);
  EXPECT_EQ(watch.state(30s), State::kFree);
}

TEST(LeaseWatch, AnUnbelievableLeaseTimeIsCut) {
  root::LeaseWatch watch(1s);
  watch.see(sighting(3, record_of(1, ~0ULL)), 0s);
  EXPECT_EQ(watch.state(59min), State::kWatching);
  EXPECT_EQ(watch.state(60min), State::kFree);
}

TEST(LeaseWatch, AReleasedLeaseIsFreeAtOnce) {
  root::LeaseWatch watch(1s);
  root::LeaseRecord record = record_of(17);
  record.is_released = true;
  watch.see(sighting(3, record), 0s);
  EXPECT_EQ(watch.state(0s), State::kFree);

  root::LeaseWatch later(1s);
  later.see(sighting(3, record_of(16)), 0s);
  later.see(sighting(3, record), 1s);
  EXPECT_EQ(later.state(1s), State::kFree);
}

TEST(LeaseWatch, AProvenDeathIsFreeAtOnce) {
  root::LeaseWatch watch(1s);
  root::LeaseSighting dead = sighting(3, record_of(17));
  watch.see(dead, 0s);
  EXPECT_EQ(watch.state(1s), State::kWatching);
  dead.is_proven_dead = true;
  watch.see(dead, 1s);  // the file has not changed
  EXPECT_EQ(watch.state(1s), State::kFree);
}

TEST(LeaseWatch, ANewHolderThatComesMeanwhileIsAlive) {
  root::LeaseWatch watch(5s);
  root::LeaseRecord released = record_of(17);
  released.is_released = true;
  watch.see(sighting(3, released), 0s);
  watch.see({4, "", false}, 1s);
  EXPECT_EQ(watch.state(1s), State::kHeld);
  EXPECT_FALSE(watch.record());  // the previous epoch's record is dropped
  watch.see(sighting(4, record_of(1)), 2s);
  EXPECT_EQ(watch.state(61s), State::kHeld);
  EXPECT_EQ(watch.state(62s), State::kFree);
}

TEST(LeaseWatch, AHolderOfTheFirstLookMayBeDead) {
  root::LeaseWatch watch(1s);
  watch.see(sighting(4, record_of(1)), 0s);
  EXPECT_EQ(watch.state(1s), State::kWatching);
}

/// The view that an observer on `host` has of the holder of record_of(), which is on n1.
root::Surroundings seen_from(const char* host, bool is_local, bool has_lock, os::Life life) {
  return {process_on(host, 99), is_local, has_lock, life};
}

TEST(ProvenDead, ALockIsProofOnlyOnThisMachineAndOnlyWhenTheHolderHadOne) {
  EXPECT_TRUE(root::is_proven_dead(record_of(1), seen_from("n1", true, true, os::Life::kUnknown)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n1", true, false, os::Life::kUnknown)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n1", false, true, os::Life::kUnknown)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n2", false, true, os::Life::kUnknown)));
  root::LeaseRecord without = record_of(1);
  without.is_locked = false;
  EXPECT_FALSE(root::is_proven_dead(without, seen_from("n1", true, true, os::Life::kUnknown)));
}

TEST(ProvenDead, ADeadProcessIsProofInItsOwnNamespaceOnly) {
  EXPECT_TRUE(root::is_proven_dead(record_of(1), seen_from("n1", false, false, os::Life::kDead)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n1", false, false, os::Life::kAlive)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n1", false, false, os::Life::kUnknown)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n2", false, false, os::Life::kDead)));
  root::Surroundings elsewhere = seen_from("n1", false, false, os::Life::kDead);
  elsewhere.observer.pid_namespace = "pid:[2]";
  EXPECT_FALSE(root::is_proven_dead(record_of(1), elsewhere));
  root::LeaseRecord untold = record_of(1);
  untold.holder.process.pid_namespace.clear();
  elsewhere.observer.pid_namespace.clear();
  EXPECT_FALSE(root::is_proven_dead(untold, elsewhere));
}

TEST(ProvenDead, AnotherBootIsProofWhereOnlyThisMachineSeesTheFiles) {
  const auto again = [](bool is_local) {
    root::Surroundings found = seen_from("n1", is_local, false, os::Life::kUnknown);
    found.observer.boot_id = "the boot after";
    return found;
  };
  EXPECT_TRUE(root::is_proven_dead(record_of(1), again(true)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), again(false)));
  root::LeaseRecord untold = record_of(1);
  untold.holder.process.boot_id.clear();
  EXPECT_FALSE(root::is_proven_dead(untold, seen_from("n1", true, true, os::Life::kDead)));
}

TEST(ProvenDead, NobodyIsWhoWritesToALocalFileSystemThatIsExported) {
  // n1 writes through the network; n2 is the machine with the disk, which would trust locks and boot ids.
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n2", true, true, os::Life::kUnknown)));
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n2", true, true, os::Life::kDead)));
  root::LeaseRecord nameless = record_of(1);
  root::Surroundings observed = seen_from("n2", true, true, os::Life::kUnknown);
  for (const char* name : {"localhost", ""}) {
    nameless.holder.process.host = name;
    observed.observer.host = name;
    EXPECT_FALSE(root::is_proven_dead(nameless, observed)) << name;
  }
  // The observer is another process of n1, which also writes through the network; the holder is alive.
  EXPECT_FALSE(root::is_proven_dead(record_of(1), seen_from("n1", true, true, os::Life::kAlive)));
}

TEST(ProvenDead, OfItsOwnProcessTheObserverKnows) {
  root::Surroundings here{process_on("n1", 7)};
  EXPECT_TRUE(root::is_proven_dead(record_of(1), here));
  here.is_here = true;
  here.has_lock = here.is_local = true;
  EXPECT_FALSE(root::is_proven_dead(record_of(1), here));
  root::LeaseRecord untold = record_of(1);
  untold.holder.process.start_time = here.observer.start_time = 0;
  here.is_here = here.has_lock = false;
  EXPECT_FALSE(root::is_proven_dead(untold, here)) << "another process may have that number";
}

/// A lease that is watched from 0 s and whose record changed at 1 s.
root::LeaseWatch held_watch() {
  root::LeaseWatch watch(1s);
  watch.see(sighting(3, record_of(1)), 0s);
  watch.see(sighting(3, record_of(2)), 1s);
  return watch;
}

TEST(LeaseAnswer, AFreeLeaseIsTakenAndAnUnknownOneIsWatched) {
  root::LeaseWatch watch(1s);
  const root::LeaseRequest request;
  EXPECT_EQ(root::answer(watch, request, 0s, 0s), root::LeaseAnswer::kLookAgain);
  watch.see(sighting(3, record_of(1)), 0s);
  EXPECT_EQ(root::answer(watch, request, 0s, 59s),
            root::LeaseAnswer::kLookAgain);  // the answer is not known yet, whatever was requested
  EXPECT_EQ(root::answer(watch, request, 0s, 60s), root::LeaseAnswer::kTake);
}

TEST(LeaseAnswer, AHolderThatLivesIsAnErrorUnlessOneWaits) {
  const root::LeaseWatch watch = held_watch();
  root::LeaseRequest request;
  request.process = process_on("n2", 8);
  EXPECT_EQ(root::answer(watch, request, 0s, 2s), root::LeaseAnswer::kRefuse);
  request.wait = 10s;
  EXPECT_EQ(root::answer(watch, request, 9s, 2s), root::LeaseAnswer::kLookAgain);
  EXPECT_EQ(root::answer(watch, request, 10s, 2s), root::LeaseAnswer::kRefuse);
  EXPECT_EQ(root::answer(watch, request, 10s, 61s), root::LeaseAnswer::kTake);
}

TEST(LeaseAnswer, AHolderIsRefusedByNameOnly) {
  root::LeaseWatch watch(60s);
  watch.see({}, 0s);
  watch.see({1, "", false}, 1s);
  ASSERT_EQ(watch.state(1s), State::kHeld);
  EXPECT_EQ(root::answer(watch, {}, 0s, 1s), root::LeaseAnswer::kLookAgain);
  watch.see(sighting(1, record_of(1)), 2s);
  EXPECT_EQ(root::answer(watch, {}, 0s, 2s), root::LeaseAnswer::kRefuse);
}

TEST(LeaseAnswer, ARequeuedJobWaitsByItself) {
  const root::LeaseWatch watch = held_watch();
  root::LeaseRequest request;
  request.process = process_on("n2", 8);
  request.job_id = "45";  // the holder's job
  EXPECT_EQ(root::answer(watch, request, 29min, 2s), root::LeaseAnswer::kLookAgain);
  EXPECT_EQ(root::answer(watch, request, 30min, 2s), root::LeaseAnswer::kRefuse);
  request.job_id = "46";
  EXPECT_EQ(root::answer(watch, request, 0s, 2s), root::LeaseAnswer::kRefuse);
  request.restarts = 1;
  EXPECT_EQ(root::answer(watch, request, 29min, 2s), root::LeaseAnswer::kLookAgain);
  request.wait = 0s;  // an explicit setting counts
  EXPECT_EQ(root::answer(watch, request, 0s, 2s), root::LeaseAnswer::kRefuse);
}

TEST(LeaseAnswer, NobodyWaitsForItself) {
  const root::LeaseWatch watch = held_watch();
  root::LeaseRequest request;
  request.process = record_of(1).holder.process;
  request.job_id = "45";
  request.restarts = 1;
  EXPECT_EQ(root::answer(watch, request, 0s, 2s), root::LeaseAnswer::kRefuse);
}

TEST(LeaseAnswer, TwoJobsWithoutABatchSystemAreNotOne) {
  root::LeaseRecord without = record_of(1);
  without.holder.job_id.clear();
  root::LeaseRequest request;
  request.process = process_on("n2", 8);
  EXPECT_EQ(root::wait_for(request, without), 0s);
  EXPECT_EQ(root::wait_for(request, std::nullopt), 0s);
}

}  // namespace
}  // namespace cairn::checkpoint
