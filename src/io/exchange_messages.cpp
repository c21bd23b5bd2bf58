// Makes the schedule, and packs, posts and completes messages.
#include "io/exchange_messages.hpp"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "comm/wait.hpp"
#include "io/copy_runs.hpp"
#include "plan/transfers.hpp"

namespace cairn::io {

WindowIndex::WindowIndex(std::span<const plan::Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes,
                         std::uint64_t first_round) {
  plan::for_each_window_part(extents, window_bytes, block_bytes,
                             [&](std::size_t window, const plan::Extent& part, std::uint64_t offset) {
                               const auto round = base::narrow<std::uint32_t>(first_round + window, "round");
                               parts_.push_back({part.file, round, part.begin, part.end, offset});
                             });
}

std::span<const WindowIndex::Part> WindowIndex::meeting(std::uint32_t file, std::uint64_t begin,
                                                        std::uint64_t end) const {
  const auto first = std::partition_point(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.file < file || (part.file == file && part.end <= begin);
  });
  const auto last = std::partition_point(first, parts_.end(),
                                         [&](const Part& part) { return part.file == file && part.begin < end; });
  return {first, last};
}

void Schedule::reserve(std::size_t transfers) { runs_.reserve(transfers); }

void Schedule::add(const plan::Runs& runs, const WindowIndex& windows) {
  const auto number = base::narrow<std::uint32_t>(runs_.size(), "number of transfers of a rank");
  runs_.push_back(runs);
  schedule(number, windows);
}

void Schedule::add(std::vector<plan::Runs> transfers, const std::function<WindowIndex(int)>& windows_of) {
  std::size_t next = runs_.size();
  if (runs_.capacity() == 0) {
    runs_ = std::move(transfers);
  } else {
    runs_.insert(runs_.end(), transfers.begin(), transfers.end());
  }
  base::narrow<std::uint32_t>(runs_.size(), "number of transfers of a rank");
  pending_.reserve(runs_.capacity());  // most transfers overlap only one part of a window
  while (next < runs_.size()) {
    const int peer = runs_[next].file_rank;
    const WindowIndex windows = windows_of(peer);
    for (; next < runs_.size() && runs_[next].file_rank == peer; ++next) {
      schedule(static_cast<std::uint32_t>(next), windows);
    }
  }
}

void Schedule::schedule(std::uint32_t number, const WindowIndex& windows) {
  const plan::Runs& runs = runs_[number];
  const std::size_t before = pending_.size();
  for (const WindowIndex::Part& part : windows.meeting(runs.file, runs.file_begin, runs.file_end())) {
    const std::uint64_t first = runs.bytes_before(part.begin);
    const std::uint64_t bytes = runs.bytes_before(part.end) - first;
    if (bytes != 0) pending_.push_back({part.round, {{number, first, bytes}, part.buffer_offset - part.begin}});
  }
  if (pending_.size() == before) {
    throw base::internal_error("transfer of " + plan::to_string(runs) + ": none of them lies in these extents");
  }
}

void Schedule::finish() {
  // The transfers of a batch arrive in ascending order of step, and its transfers of one peer are consecutive. So a
  // stable sort by (round, peer's place, packed) keeps the order of transfers inside a pair.
  std::vector<std::uint32_t> place(runs_.size(), 0);
  for (std::size_t r = 1; r < runs_.size(); ++r) {
    place[r] = place[r - 1] + (peer_of(runs_[r], own_) != peer_of(runs_[r - 1], own_) ? 1 : 0);
  }
  std::stable_sort(pending_.begin(), pending_.end(), [&](const Scheduled& a, const Scheduled& b) {
    if (a.round != b.round) return a.round < b.round;
    if (place[a.item.runs] != place[b.item.runs]) return place[a.item.runs] < place[b.item.runs];
    return is_direct(runs_[a.item.runs], a.item) && !is_direct(runs_[b.item.runs], b.item);
  });
  items_.reserve(pending_.size());
  for (const Scheduled& scheduled : pending_) {
    if (scheduled.round + 1 >= round_begin_.size()) {
      throw base::internal_error("exchange: a window lies behind the last round");
    }
    ++round_begin_[scheduled.round + 1];
    items_.push_back(scheduled.item);
  }
  std::partial_sum(round_begin_.begin(), round_begin_.end(), round_begin_.begin());
  pending_ = {};
}

std::span<const Item> Schedule::items(std::uint64_t round) const {
  if (round + 1 >= round_begin_.size()) return {};
  return std::span(items_).subspan(round_begin_[round], round_begin_[round + 1] - round_begin_[round]);
}

std::uint64_t Schedule::bytes(std::uint64_t round) const {
  std::uint64_t sum = 0;
  for (const Item& item : items(round)) sum += item.bytes;
  return sum;
}

bool Schedule::has_packed_items() const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return !is_direct(runs_[item.runs], item); });
}

void Schedule::cover_memory(std::uint64_t first_round, std::vector<plan::MemorySpan>& spans) const {
  for (std::size_t i = round_begin_.at(first_round); i < items_.size(); ++i) {
    const plan::Runs& runs = runs_[items_[i].runs];
    if (runs.local >= spans.size()) spans.resize(runs.local + std::size_t{1});
    spans[runs.local].cover(plan::memory_span(runs, items_[i]));
  }
}

namespace {

constexpr int kExchangeTag = 1971;
constexpr std::size_t kInFlightPerLane = 64;
/// Limit on packed bytes in flight per lane: enough for any network's latency, few enough to stay in the cache between
/// packing and sending (32 MiB were 10 to 25 % slower on shared memory, 2026-11).
constexpr std::uint64_t kPackedInFlightBytes = 2ULL << 20;
constexpr std::uint64_t kLocalPieceBytes = 1ULL << 20;

/// Address and stride of a batch of an item's runs on this side.
template <class Pointer>
Strided<Pointer> locate(const Side<Pointer>& side, const Item& item, const plan::RunBatch& batch) {
  if (side.schedule.own() == End::kFile) {
    return {side.window + (batch.file_offset + item.window_shift), batch.file_stride};
  }
  const plan::MemoryBox& box = side.memory[side.schedule.runs()[item.runs].local];
  return {box.bytes.data() + batch.memory_offset, batch.memory_stride};
}

/// The object that copies runs in this side's device memory; null for memory that the host can address.
template <class Pointer>
DeviceCopies* device_of(const Side<Pointer>& side, const plan::Runs& runs) {
  return side.schedule.own() == End::kMemory && runs.memory == Memory::kDevice ? side.device : nullptr;
}

/// Copies from a side to the host. With a device, the bytes arrive at settle().
void copy_from(DeviceCopies* device, const Strided<const std::byte*>& from, const Strided<std::byte*>& host,
               const plan::RunBatch& batch) {
  if (device != nullptr) return device->to_host(host, from, batch.length_bytes, batch.count);
  copy_runs(host, from, batch.length_bytes, batch.count);
}

void copy_to(DeviceCopies* device, const Strided<std::byte*>& to, const Strided<const std::byte*>& host,
             const plan::RunBatch& batch) {
  if (device != nullptr) return device->to_device(to, host, batch.length_bytes, batch.count);
  copy_runs(to, host, batch.length_bytes, batch.count);
}

/// Copies a packed message from this side's memory or window to its slot (to send it), or back (after receiving it).
template <class Pointer>
void copy_packed(const Side<Pointer>& side, const Packet& message, std::byte* slot) {
  std::uint64_t left = message.bytes;
  std::uint64_t offset = message.offset;
  bool is_on_device = false;
  for (std::size_t i = message.item; left > 0; ++i, offset = 0) {
    const Item& item = side.items[i];
    const std::uint64_t bytes = std::min(left, item.bytes - offset);
    const plan::Runs& runs = side.schedule.runs()[item.runs];
    DeviceCopies* const device = device_of(side, runs);
    plan::RunCursor cursor(runs, item.first + offset, bytes);
    while (!cursor.done()) {
      const plan::RunBatch batch = cursor.next();
      const Strided<Pointer> place = locate(side, item, batch);
      if constexpr (std::is_const_v<std::remove_pointer_t<Pointer>>) {
        copy_from(device, place, {slot, batch.length_bytes}, batch);
        is_on_device = is_on_device || device != nullptr;
      } else {
        copy_to(device, place, {slot, batch.length_bytes}, batch);
      }
      slot += batch.length_bytes * batch.count;
    }
    left -= bytes;
  }
  if (is_on_device) side.device->settle();  // the slot is about to be sent
}

/// The contiguous bytes of a zero-copy message.
template <class Pointer>
Pointer zero_copy_bytes(const Side<Pointer>& side, const Packet& message) {
  const Item& item = side.items[message.item];
  plan::RunCursor cursor(side.schedule.runs()[item.runs], item.first + message.offset, message.bytes);
  const plan::RunBatch run = cursor.next();
  if (run.length_bytes != message.bytes) throw base::internal_error("exchange: a zero-copy message is not one run");
  return locate(side, item, run).base;
}

}  // namespace

SlotArena::SlotArena(std::uint64_t slot_bytes, std::uint64_t slots)
    : memory_(std::make_unique_for_overwrite<std::byte[]>(slot_bytes * slots)) {
  for (std::uint64_t s = slots; s-- > 0;) free_.push_back(memory_.get() + s * slot_bytes);
}

std::byte* SlotArena::take() {
  std::byte* slot = free_.back();
  free_.pop_back();
  return slot;
}

PacketCutter::PacketCutter(const Schedule& schedule, std::span<const Item> items, std::uint64_t slot_bytes)
    : schedule_(schedule), items_(items), slot_bytes_(slot_bytes) {
  advance();
}

void PacketCutter::advance() {
  next_.reset();
  if (item_ == items_.size()) return;
  const Item& item = items_[item_];
  const std::span<const plan::Runs> all = schedule_.runs();
  const plan::Runs& runs = all[item.runs];
  const int peer = peer_of(runs, schedule_.own());
  Packet message{peer, is_direct(runs, item), item_, offset_, 0};
  if (message.zero_copy) {  // up to the end of the run
    const std::uint64_t run = runs.run_bytes;
    const std::uint64_t to_run_end = run - (item.first + offset_) % run;
    message.bytes = std::min({to_run_end, item.bytes - offset_, schedule_.largest_message_bytes()});
    offset_ += message.bytes;
    if (offset_ == item.bytes) {
      ++item_;
      offset_ = 0;
    }
  } else {
    while (item_ < items_.size() && message.bytes < slot_bytes_) {
      const Item& more = items_[item_];
      if (is_direct(all[more.runs], more) || peer_of(all[more.runs], schedule_.own()) != peer) break;
      const std::uint64_t bytes = std::min(slot_bytes_ - message.bytes, more.bytes - offset_);
      message.bytes += bytes;
      offset_ += bytes;
      if (offset_ < more.bytes) break;
      ++item_;
      offset_ = 0;
    }
  }
  next_ = message;
}

template <class Pointer>
Lane<Pointer>::Lane(comm::Communicator& communicator, const Side<Pointer>& side, SlotArena& arena,
                    std::uint64_t slot_bytes)
    : communicator_(communicator), side_(side), arena_(arena), cutter_(side.schedule, side.items, slot_bytes) {
  if (cutter_.next()) in_flight_.reserve(kInFlightPerLane);
}

template <class Pointer>
bool Lane<Pointer>::poll() {
  bool moved = false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    if (in_flight_[i].request->test()) {
      complete(in_flight_[i]);
      moved = true;
    } else {
      if (kept != i) in_flight_[kept] = std::move(in_flight_[i]);
      ++kept;
    }
  }
  in_flight_.resize(kept);
  while (post_next()) moved = true;
  return moved;
}

template <class Pointer>
void Lane<Pointer>::finish() {
  for (InFlight& flight : in_flight_) {
    flight.request->wait();
    complete(flight);
  }
  in_flight_.clear();
}

template <class Pointer>
bool Lane<Pointer>::post_next() {
  if (!cutter_.next() || in_flight_.size() == kInFlightPerLane) return false;
  const Packet message = *cutter_.next();
  const bool fits = packed_in_flight_bytes_ == 0 || packed_in_flight_bytes_ + message.bytes <= kPackedInFlightBytes;
  if (!message.zero_copy && !(fits && arena_.has_free())) return false;
  std::byte* slot = message.zero_copy ? nullptr : arena_.take();
  std::unique_ptr<comm::Request> request;
  if constexpr (std::is_const_v<std::remove_pointer_t<Pointer>>) {
    if (slot != nullptr) copy_packed(side_, message, slot);
    const std::byte* data = slot != nullptr ? slot : zero_copy_bytes(side_, message);
    request = communicator_.send({data, message.bytes}, message.peer, kExchangeTag);
  } else {
    std::byte* data = slot != nullptr ? slot : zero_copy_bytes(side_, message);
    request = communicator_.receive({data, message.bytes}, message.peer, kExchangeTag);
  }
  if (slot != nullptr) packed_in_flight_bytes_ += message.bytes;
  in_flight_.push_back({message, slot, std::move(request)});
  cutter_.advance();
  return true;
}

template <class Pointer>
void Lane<Pointer>::complete(InFlight& flight) {
  if (flight.slot != nullptr) {
    if constexpr (!std::is_const_v<std::remove_pointer_t<Pointer>>) copy_packed(side_, flight.message, flight.slot);
    arena_.give_back(flight.slot);
    packed_in_flight_bytes_ -= flight.message.bytes;
  }
  completed_bytes_ += flight.message.bytes;
}

template class Lane<const std::byte*>;
template class Lane<std::byte*>;

void LocalCopy::copy(const Item& item, std::uint64_t bytes) const {
  const plan::Runs& runs = memory_.schedule.runs()[item.runs];
  DeviceCopies* const device = device_of(memory_, runs);
  std::byte* const window = windows_[static_cast<std::size_t>(runs.file_rank)];
  plan::RunCursor cursor(runs, item.first + offset_, bytes);
  while (!cursor.done()) {
    const plan::RunBatch batch = cursor.next();
    const Strided<std::byte*> in_window{window + (batch.file_offset + item.window_shift), batch.file_stride};
    const Strided<std::byte*> in_memory = locate(memory_, item, batch);
    if (direction_ == Direction::kToWindows) {
      copy_from(device, {in_memory.base, in_memory.stride}, in_window, batch);
    } else {
      copy_to(device, in_memory, {in_window.base, in_window.stride}, batch);
    }
  }
}

void LocalCopy::copy_some() {
  std::uint64_t budget = kLocalPieceBytes;
  while (budget > 0 && !done()) {
    const Item& item = memory_.items[item_];
    const std::uint64_t bytes = std::min(budget, item.bytes - offset_);
    copy(item, bytes);
    budget -= bytes;
    offset_ += bytes;
    copied_bytes_ += bytes;
    if (offset_ == item.bytes) {
      ++item_;
      offset_ = 0;
    }
  }
}

void run_messages(comm::Communicator& communicator, Lane<const std::byte*>& outgoing, Lane<std::byte*>& incoming,
                  LocalCopy& local) {
  const auto liveness = communicator.liveness();
  comm::Wait wait(liveness.get(), "the messages of the exchange");
  while (!(incoming.all_posted() && outgoing.all_posted() && local.done())) {
    const bool received = incoming.poll();
    const bool sent = outgoing.poll();
    if (received || sent) {
      wait.moved();
    } else if (!local.done()) {
      local.copy_some();
      wait.moved();
    } else {
      wait.pause();
    }
  }
  incoming.finish();
  outgoing.finish();
}

}  // namespace cairn::io
