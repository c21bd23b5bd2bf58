#include "simulated_world.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace cairn::comm::internal {

World::World(int ranks) : changed_(index(ranks)), ended_(index(ranks)), woken_(index(ranks)), threads_(index(ranks)) {}

std::shared_ptr<Group> World::group(const std::string& name, const std::vector<int>& members) {
  std::shared_ptr<Group>& found = groups_[name];
  if (found == nullptr) {
    found = std::make_shared<Group>();
    found->name = name;
    found->members = members;
    found->board.slots.resize(members.size());
    found->board.arrived.resize(members.size());
  }
  return found;
}

void World::wait(std::unique_lock<std::mutex>& lock, int world_rank, const std::string& what,
                 const std::function<Progress()>& poll) {
  if (threads_[index(world_rank)] != std::this_thread::get_id()) has_helper_threads_ = true;
  const auto self = waiters_.insert(waiters_.end(), Waiter{world_rank, what, &poll});
  for (;;) {
    const Progress progress = poll();
    if (progress == Progress::kReady) {
      waiters_.erase(self);
      return;
    }
    if (dead_lock_.empty()) look_for_dead_lock();
    if (progress == Progress::kHopeless || !dead_lock_.empty()) {
      waiters_.erase(self);
      mark_woken(world_rank);
      throw PeerGone(!dead_lock_.empty()
                         ? dead_lock_
                         : fmt::format("rank {} waits in vain in {}: a rank has ended", world_rank, what));
    }
    changed_[index(world_rank)].wait(lock);
  }
}

void World::look_for_dead_lock() {
  const auto alive = std::count(ended_.begin(), ended_.end(), false);
  if (has_helper_threads_ || static_cast<std::size_t>(alive) != waiters_.size()) return;
  const bool stuck = std::all_of(waiters_.begin(), waiters_.end(),
                                 [](const Waiter& waiter) { return (*waiter.poll)() == Progress::kPending; });
  if (!stuck) return;
  dead_lock_ = "all simulated ranks wait for each other:";
  for (const Waiter& waiter : waiters_) dead_lock_ += fmt::format(" rank {} in {};", waiter.world_rank, waiter.what);
  dead_lock_.pop_back();
  wake_all();
}

void World::wake_all() {
  for (std::condition_variable& one : changed_) one.notify_all();
}

void World::begin(int world_rank) {
  const std::lock_guard lock(mutex);
  threads_[index(world_rank)] = std::this_thread::get_id();
}

void World::end(int world_rank) {
  const std::lock_guard lock(mutex);
  ended_[index(world_rank)] = true;
  wake_all();
}

}  // namespace cairn::comm::internal
