// The exchange: transfers go to their aggregators once; then rounds of messages (exchange_messages.hpp).
#include "io/exchange.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/exchange_messages.hpp"
#include "plan/transfers.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kLargestSlotBytes = 1ULL << 20;  // stays in a core's cache between packing and sending
constexpr std::uint64_t kSmallestBufferBytes = 16ULL << 10;

void require(bool condition, std::string_view what) {
  if (!condition) throw Error(ErrorKind::kInternal, "exchange: " + std::string(what));
}

/// Both ends check a transfer, before it is used.
void check_transfer(const plan::Runs& runs, std::span<const format::StoredFile> files) {
  plan::check_runs(runs);
  require(runs.file < files.size(), plan::to_string(runs) + " are of file number " + std::to_string(runs.file) +
                                        ", and there are " + std::to_string(files.size()));
  const format::StoredFile& file = files[runs.file];
  require(runs.file_end() <= file.size_bytes, plan::to_string(runs) + " end at byte " +
                                                  std::to_string(runs.file_end()) + " of a file of " +
                                                  std::to_string(file.size_bytes));
}

/// Place of a pair in every round: in each step a rank has one partner per direction (exchange_messages.hpp).
int step_of(int memory_rank, int file_rank, int ranks) { return (file_rank - memory_rank + ranks) % ranks; }

/// What the transfers of a rank need of a local memory box.
struct MemoryNeed {
  std::uint64_t bytes = 0;
  Memory memory = Memory::kHost;
};

std::vector<MemoryNeed> memory_needs(std::span<const plan::Runs> transfers) {
  std::vector<MemoryNeed> needs;
  for (const plan::Runs& runs : transfers) {
    if (runs.local >= needs.size()) needs.resize(runs.local + std::size_t{1});
    needs[runs.local] = {std::max(needs[runs.local].bytes, runs.memory_end()), runs.memory};
  }
  return needs;
}

const char* name_of(Memory memory) { return memory == Memory::kHost ? "host memory" : "device memory"; }

}  // namespace

struct Exchange::State {
  std::uint64_t slot_bytes = 0;
  std::vector<MemoryNeed> memory_needs;  // by local memory box
  Schedule memory_side;                  // this rank's memory, windows of ranks that it cannot reach
  Schedule file_side;                    // this rank's windows, memory of ranks that it cannot reach
  Schedule local;                        // this rank's memory, windows that it can reach
  SlotArena memory_slots;
  SlotArena file_slots;
  std::vector<bool> reached;  // by rank: which of `local` and `memory_side` its windows belong to
  // Windows of all ranks in the round under way; the room is made in the first one, so that no later one can fail on
  // one rank alone.
  std::vector<std::byte*> buffers;

  void schedule_own(std::span<const plan::Runs> mine, const std::function<WindowIndex(int)>& windows_of,
                    const WindowPool& pool);
  void check_memory(std::span<const plan::MemoryBox> memory) const;
};

void Exchange::State::schedule_own(std::span<const plan::Runs> mine, const std::function<WindowIndex(int)>& windows_of,
                                   const WindowPool& pool) {
  for (std::size_t first = 0; first < mine.size();) {
    const int peer = mine[first].file_rank;
    const WindowIndex windows = windows_of(peer);
    for (; first < mine.size() && mine[first].file_rank == peer; ++first) {
      (pool.reaches(peer) ? local : memory_side).add(mine[first], windows);
    }
  }
  memory_needs = io::memory_needs(mine);
}

Exchange::Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files,
                   const plan::ExtentMap& extents, std::uint64_t window_bytes, WindowPool& pool,
                   std::vector<plan::Runs> mine, ExchangeOptions options)
    : communicator_(communicator), pool_(&pool), device_(options.device) {
  const int rank = communicator.rank();
  const int ranks = communicator.size();
  std::vector<base::Bytes> outgoing;
  comm::agree(communicator, "exchange: describe transfers", [&] {
    state_ = std::make_unique<State>();
    for (int peer = 0; peer < ranks; ++peer) state_->reached.push_back(pool.reaches(peer));
    outgoing.resize(static_cast<std::size_t>(ranks));
    require(extents.ranks() <= ranks, "more aggregators than ranks");
    windows_ = plan::cut_windows(extents.of(rank), window_bytes, extents.block_bytes());
    for (const plan::Window& window : windows_) {
      require(window.buffer_bytes <= pool.bytes(), "a window of " + std::to_string(window.buffer_bytes) +
                                                       " bytes and a buffer of " + std::to_string(pool.bytes()));
    }
    for (const plan::Runs& runs : mine) {
      check_transfer(runs, files);
      require(runs.file_rank >= 0 && runs.file_rank < ranks, plan::to_string(runs) + ": there is no such rank");
      require(runs.memory_rank == rank, plan::to_string(runs) + " are not of this rank's memory");
      require(runs.memory == Memory::kHost || device_ != nullptr,
              plan::to_string(runs) + " are in device memory, and there is nothing to copy them with");
      has_device_memory_ = has_device_memory_ || runs.memory == Memory::kDevice;
    }
    const auto step_to = [&](const plan::Runs& runs) { return step_of(rank, runs.file_rank, ranks); };
    std::stable_sort(mine.begin(), mine.end(), [&](const auto& a, const auto& b) { return step_to(a) < step_to(b); });
    for (const plan::Runs& runs : mine) {  // who reaches a window needs no help of its aggregator
      if (!pool.reaches(runs.file_rank)) append_runs(outgoing[static_cast<std::size_t>(runs.file_rank)], runs);
    }
  });
  const std::vector<base::Bytes> incoming = communicator.all_to_all(std::move(outgoing));
  rounds_ = communicator.max(windows_.size());
  has_device_memory_ = communicator.max(has_device_memory_ ? 1 : 0) != 0;
  options.buffer_bytes = std::max(communicator.min(options.buffer_bytes), kSmallestBufferBytes);

  comm::agree(communicator, "exchange: plan rounds", [&] {
    const auto windows_of = [&](int peer) {
      return WindowIndex(extents.of(peer), window_bytes, extents.block_bytes());
    };
    State& state = *state_;
    state.memory_side = Schedule(End::kMemory, rounds_);
    state.file_side = Schedule(End::kFile, rounds_);
    state.local = Schedule(End::kMemory, rounds_);
    state.schedule_own(mine, windows_of, pool);
    const WindowIndex own_windows = windows_of(rank);
    for (int step = 0; step < ranks; ++step) {
      const int from = (rank - step + ranks) % ranks;
      for (const plan::Runs& runs : plan::parse_runs(incoming[static_cast<std::size_t>(from)], rank)) {
        check_transfer(runs, files);
        require(runs.memory_rank == from, plan::to_string(runs) + " came from rank " + std::to_string(from));
        state.file_side.add(runs, own_windows);
      }
    }
    state.memory_side.finish();
    state.file_side.finish();
    state.local.finish();
    // Half of the budget per direction, at least two slots each, so that packing and travelling overlap.
    state.slot_bytes = std::min(options.buffer_bytes / 4, kLargestSlotBytes);
    const std::uint64_t slots = options.buffer_bytes / 2 / state.slot_bytes;
    if (state.memory_side.has_packed_items()) state.memory_slots = SlotArena(state.slot_bytes, slots);
    if (state.file_side.has_packed_items()) state.file_slots = SlotArena(state.slot_bytes, slots);
  });
}

Exchange::~Exchange() {
  if (communicator_.is_dead()) static_cast<void>(state_.release());  // messages may use its slots for ever
}

bool Exchange::use(WindowPool& pool) {
  for (const plan::Window& window : windows_) {
    if (window.buffer_bytes > pool.bytes()) return false;
  }
  for (std::size_t peer = 0; peer < state_->reached.size(); ++peer) {
    if (pool.reaches(static_cast<int>(peer)) != state_->reached[peer]) return false;
  }
  pool_ = &pool;
  return true;
}

void Exchange::State::check_memory(std::span<const plan::MemoryBox> memory) const {
  for (std::size_t l = 0; l < memory_needs.size(); ++l) {
    const MemoryNeed& need = memory_needs[l];
    if (need.bytes == 0) continue;
    const std::uint64_t found = l < memory.size() ? memory[l].bytes.size() : 0;
    require(found >= need.bytes, "memory box " + std::to_string(l) + " has " + std::to_string(found) +
                                     " bytes where its transfers need " + std::to_string(need.bytes));
    require(memory[l].memory == need.memory, "memory box " + std::to_string(l) + " is in " + name_of(memory[l].memory) +
                                                 ", its transfers are of " + name_of(need.memory));
  }
}

/// Collective, where any rank has device memory: the bytes of a round are where they belong, or the error is
/// everybody's.
void Exchange::finish_device_copies() {
  if (!has_device_memory_) return;
  comm::agree(communicator_, "copy between device and host", [&] {
    if (device_ != nullptr) device_->finish();
  });
}

std::uint64_t Exchange::gather(std::uint64_t round, std::span<const plan::MemoryBox> memory) {
  State& state = *state_;
  if (round == 0) {
    comm::agree(communicator_, "gather", [&] {
      state.check_memory(memory);
      pool_->put_buffers(round, state.buffers);
    });
  }
  pool_->make_window(communicator_, round);
  pool_->reset_arrived(round);
  pool_->barrier();  // from here on the others may write into this rank's window
  pool_->put_buffers(round, state.buffers);
  std::byte* const own_window = state.buffers[static_cast<std::size_t>(communicator_.rank())];
  const Side<const std::byte*> from_memory{state.memory_side, state.memory_side.items(round), memory, nullptr, device_};
  const Side<std::byte*> to_window{state.file_side, state.file_side.items(round), {}, own_window};
  Lane<const std::byte*> outgoing(communicator_, from_memory, state.memory_slots, state.slot_bytes);
  Lane<std::byte*> incoming(communicator_, to_window, state.file_slots, state.slot_bytes);
  LocalCopy local(LocalCopy::Direction::kToWindows, {state.local, state.local.items(round), memory, nullptr, device_},
                  state.buffers);
  run_messages(communicator_, outgoing, incoming, local);
  for (const Item& item : state.local.items(round)) {
    pool_->add_arrived(state.local.runs()[item.runs].file_rank, round, item.bytes);
  }
  pool_->barrier();  // all bytes of the node are there
  finish_device_copies();
  require(incoming.completed_bytes() == state.file_side.bytes(round), "bytes are missing after a gather");
  return incoming.completed_bytes() + pool_->arrived(round);
}

std::uint64_t Exchange::scatter(std::uint64_t round, std::span<const plan::MemoryBox> memory) {
  State& state = *state_;
  if (round == 0) {
    comm::agree(communicator_, "scatter", [&] {
      state.check_memory(memory);
      pool_->put_buffers(round, state.buffers);
    });
  }
  pool_->barrier();  // all windows of the node are filled
  pool_->put_buffers(round, state.buffers);
  const std::byte* const own_window = state.buffers[static_cast<std::size_t>(communicator_.rank())];
  const Side<const std::byte*> from_window{state.file_side, state.file_side.items(round), {}, own_window};
  const Side<std::byte*> to_memory{state.memory_side, state.memory_side.items(round), memory, nullptr, device_};
  Lane<const std::byte*> outgoing(communicator_, from_window, state.file_slots, state.slot_bytes);
  Lane<std::byte*> incoming(communicator_, to_memory, state.memory_slots, state.slot_bytes);
  LocalCopy local(LocalCopy::Direction::kToMemory, {state.local, state.local.items(round), memory, nullptr, device_},
                  state.buffers);
  run_messages(communicator_, outgoing, incoming, local);
  pool_->barrier();  // nobody reads this rank's window any more
  finish_device_copies();
  const std::uint64_t arrived = incoming.completed_bytes() + local.copied_bytes();
  require(arrived == state.memory_side.bytes(round) + state.local.bytes(round), "bytes are missing after a scatter");
  return arrived;
}

}  // namespace cairn::io
