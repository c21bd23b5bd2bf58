// The exchange: transfers go to their extent owners once; then rounds of messages (exchange_messages.hpp).
#include "io/exchange.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/exchange_messages.hpp"
#include "io/exchange_schedule.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kLargestSlotBytes = 1ULL << 20;  // stays in a core's cache between packing and sending
constexpr std::uint64_t kSmallestBufferBytes = 16ULL << 10;

void require(bool condition, std::string_view what) {
  if (!condition) throw Error(ErrorKind::kInternal, "exchange: " + std::string(what));
}

std::string describe(const plan::Transfer& transfer) {
  return "transfer of tensor " + std::to_string(transfer.tensor) + " from memory of rank " +
         std::to_string(transfer.memory_rank) + " to extents of rank " + std::to_string(transfer.extent_rank);
}

void check_transfer(const plan::Transfer& transfer, const format::StoredCheckpoint& stored, int ranks) {
  const bool known =
      transfer.tensor < stored.tensors.size() && transfer.stored < stored.tensors[transfer.tensor].boxes.size();
  require(known, describe(transfer) + " names a stored box that does not exist");
  require(transfer.extent_rank >= 0 && transfer.extent_rank < ranks,
          describe(transfer) + " names a rank that does not exist");
}

/// Place of a pair in every round: in each step a rank has one partner per direction (exchange_schedule.hpp).
int step_of(int memory_rank, int extent_rank, int ranks) { return (extent_rank - memory_rank + ranks) % ranks; }

/// The pieces of local memory that the transfers of a rank need.
std::vector<std::uint64_t> memory_sizes(std::span<const plan::Transfer> transfers,
                                        const format::StoredCheckpoint& stored) {
  std::vector<std::uint64_t> sizes;
  for (const plan::Transfer& transfer : transfers) {
    if (transfer.local >= sizes.size()) sizes.resize(transfer.local + 1, 0);
    const auto elements = base::try_product(transfer.memory_box.shape);
    require(elements.has_value(), describe(transfer) + " has a memory box of 2^64 elements or more");
    const std::uint64_t bits = base::mul(*elements, bits_of(stored.tensors[transfer.tensor].dtype), "memory box bits");
    sizes[transfer.local] = std::max(sizes[transfer.local], base::ceil_div(bits, 8));
  }
  return sizes;
}

}  // namespace

struct Exchange::State {
  std::uint64_t slot_bytes = 0;
  std::vector<std::uint64_t> memory_bytes;  // what each local memory box must have
  Schedule memory_side;                     // this rank's memory, windows of ranks that it cannot reach
  Schedule extent_side;                     // this rank's windows, memory of ranks that it cannot reach
  Schedule local;                           // this rank's memory, windows that it can reach
  SlotArena memory_slots;
  SlotArena extent_slots;
  // Of the round under way; the room is made in the first one, so that no later one can fail on one rank alone.
  std::vector<const std::byte*> sources;  // memory boxes to gather from
  std::vector<std::byte*> boxes;          // the same, and those to scatter to
  std::vector<std::byte*> buffers;        // of all ranks

  void schedule(std::span<const plan::Transfer> mine, std::span<const plan::Transfer> arriving,
                const format::StoredCheckpoint& stored, const std::function<WindowIndex(int)>& windows_of,
                const WindowPool& pool);
  template <class Buffer>
  void check_memory(std::span<const Buffer> memory) const;
};

void Exchange::State::schedule(std::span<const plan::Transfer> mine, std::span<const plan::Transfer> arriving,
                               const format::StoredCheckpoint& stored,
                               const std::function<WindowIndex(int)>& windows_of, const WindowPool& pool) {
  for (std::size_t first = 0; first < mine.size();) {
    const int peer = mine[first].extent_rank;
    const WindowIndex windows = windows_of(peer);
    for (; first < mine.size() && mine[first].extent_rank == peer; ++first) {
      (pool.reaches(peer) ? local : memory_side).add(mine[first], stored, windows, peer);
    }
  }
  std::optional<WindowIndex> own_windows;
  for (const plan::Transfer& transfer : arriving) {
    if (pool.reaches(transfer.memory_rank)) continue;
    if (!own_windows) own_windows = windows_of(transfer.extent_rank);
    extent_side.add(transfer, stored, *own_windows, transfer.memory_rank);
  }
  memory_side.finish();
  extent_side.finish();
  local.finish();
}

Exchange::Exchange(comm::Communicator& communicator, const format::StoredCheckpoint& stored,
                   const plan::ExtentMap& extents, std::uint64_t window_bytes, WindowPool& pool,
                   std::vector<plan::Transfer> mine, ExchangeOptions options)
    : communicator_(communicator), pool_(pool) {
  const int rank = communicator.rank();
  const int ranks = communicator.size();
  std::vector<base::Bytes> outgoing;
  comm::agree(communicator, "exchange: describe transfers", [&] {
    state_ = std::make_unique<State>();
    outgoing.resize(static_cast<std::size_t>(ranks));
    require(extents.ranks() <= ranks, "more extent owners than ranks");
    windows_ = plan::cut_windows(extents.of(rank), window_bytes, extents.grain_bytes());
    for (const plan::Window& window : windows_) {
      require(window.buffer_bytes <= pool.bytes(), "a window of " + std::to_string(window.buffer_bytes) +
                                                       " bytes and a buffer of " + std::to_string(pool.bytes()));
    }
    for (const plan::Transfer& transfer : mine) {
      check_transfer(transfer, stored, ranks);
      require(transfer.memory_rank == rank, describe(transfer) + " is not of this rank's memory");
    }
    const auto step_to = [&](const plan::Transfer& t) { return step_of(rank, t.extent_rank, ranks); };
    std::stable_sort(mine.begin(), mine.end(), [&](const auto& a, const auto& b) { return step_to(a) < step_to(b); });
    for (const plan::Transfer& transfer : mine) {
      plan::append_record(outgoing[static_cast<std::size_t>(transfer.extent_rank)], transfer);
    }
  });
  const std::vector<base::Bytes> incoming = communicator.all_to_all(std::move(outgoing));
  rounds_ = communicator.max(windows_.size());
  options.buffer_bytes = std::max(communicator.min(options.buffer_bytes), kSmallestBufferBytes);

  comm::agree(communicator, "exchange: plan rounds", [&] {
    std::vector<plan::Transfer> arriving;  // ascending by step
    for (int step = 0; step < ranks; ++step) {
      const int from = (rank - step + ranks) % ranks;
      for (plan::Transfer& transfer : plan::parse_records(incoming[static_cast<std::size_t>(from)])) {
        check_transfer(transfer, stored, ranks);
        require(transfer.memory_rank == from && transfer.extent_rank == rank, describe(transfer) + " came astray");
        arriving.push_back(std::move(transfer));
      }
    }
    const auto windows_of = [&](int peer) {
      return WindowIndex(plan::cut_windows(extents.of(peer), window_bytes, extents.grain_bytes()));
    };
    State& state = *state_;
    state.memory_bytes = memory_sizes(mine, stored);
    state.memory_side = state.extent_side = state.local = Schedule(rounds_);
    state.schedule(mine, arriving, stored, windows_of, pool);
    // Half of the budget per direction, at least two slots each, so that packing and travelling overlap.
    state.slot_bytes = std::min(options.buffer_bytes / 4, kLargestSlotBytes);
    const std::uint64_t slots = options.buffer_bytes / 2 / state.slot_bytes;
    if (state.memory_side.has_packed_items()) state.memory_slots = SlotArena(state.slot_bytes, slots);
    if (state.extent_side.has_packed_items()) state.extent_slots = SlotArena(state.slot_bytes, slots);
  });
}

Exchange::~Exchange() {
  if (communicator_.is_dead()) static_cast<void>(state_.release());  // messages may use its slots for ever
}

template <class Buffer>
void Exchange::State::check_memory(std::span<const Buffer> memory) const {
  for (std::size_t l = 0; l < memory_bytes.size(); ++l) {
    if (memory_bytes[l] == 0) continue;
    const std::uint64_t found = l < memory.size() ? memory[l].size() : 0;
    require(found >= memory_bytes[l], "memory box " + std::to_string(l) + " has " + std::to_string(found) +
                                          " bytes where its transfers need " + std::to_string(memory_bytes[l]));
  }
}

std::uint64_t Exchange::gather(std::uint64_t round, std::span<const std::span<const std::byte>> memory) {
  State& state = *state_;
  if (round == 0) {
    comm::agree(communicator_, "gather", [&] {
      state.check_memory(memory);
      state.sources.reserve(memory.size());
      state.boxes.reserve(memory.size());
      pool_.put_buffers(round, state.buffers);
    });
  }
  pool_.make_window(communicator_, round);
  pool_.reset_arrived(round);
  pool_.barrier();  // from here on the others may write into this rank's window
  state.sources.clear();
  state.boxes.clear();
  for (const auto& box : memory) {
    state.sources.push_back(box.data());
    state.boxes.push_back(const_cast<std::byte*>(box.data()));  // read only: LocalCopy::kToWindows
  }
  pool_.put_buffers(round, state.buffers);
  std::byte* const own_window = state.buffers[static_cast<std::size_t>(communicator_.rank())];
  const Side<const std::byte*> from_memory{state.memory_side.routes(), state.memory_side.items(round), state.sources};
  const Side<std::byte*> to_window{state.extent_side.routes(), state.extent_side.items(round), {}, own_window};
  Lane<const std::byte*> outgoing(communicator_, from_memory, state.memory_slots, state.slot_bytes);
  Lane<std::byte*> incoming(communicator_, to_window, state.extent_slots, state.slot_bytes);
  LocalCopy local(LocalCopy::Direction::kToWindows, state.local.routes(), state.local.items(round), state.boxes,
                  state.buffers);
  run_messages(communicator_, outgoing, incoming, local);
  for (const Item& item : state.local.items(round)) {
    pool_.add_arrived(state.local.routes()[item.route].peer, round, item.bytes);
  }
  pool_.barrier();  // all bytes of the node are there
  require(incoming.completed_bytes() == state.extent_side.bytes(round), "bytes are missing after a gather");
  return incoming.completed_bytes() + pool_.arrived(round);
}

std::uint64_t Exchange::scatter(std::uint64_t round, std::span<const std::span<std::byte>> memory) {
  State& state = *state_;
  if (round == 0) {
    comm::agree(communicator_, "scatter", [&] {
      state.check_memory(memory);
      state.boxes.reserve(memory.size());
      pool_.put_buffers(round, state.buffers);
    });
  }
  pool_.barrier();  // all windows of the node are filled
  state.boxes.clear();
  for (const auto& box : memory) state.boxes.push_back(box.data());
  pool_.put_buffers(round, state.buffers);
  const std::byte* const own_window = state.buffers[static_cast<std::size_t>(communicator_.rank())];
  const Side<const std::byte*> from_window{state.extent_side.routes(), state.extent_side.items(round), {}, own_window};
  const Side<std::byte*> to_memory{state.memory_side.routes(), state.memory_side.items(round), state.boxes};
  Lane<const std::byte*> outgoing(communicator_, from_window, state.extent_slots, state.slot_bytes);
  Lane<std::byte*> incoming(communicator_, to_memory, state.memory_slots, state.slot_bytes);
  LocalCopy local(LocalCopy::Direction::kToMemory, state.local.routes(), state.local.items(round), state.boxes,
                  state.buffers);
  run_messages(communicator_, outgoing, incoming, local);
  pool_.barrier();  // nobody reads this rank's window any more
  const std::uint64_t arrived = incoming.completed_bytes() + local.copied_bytes();
  require(arrived == state.memory_side.bytes(round) + state.local.bytes(round), "bytes are missing after a scatter");
  return arrived;
}

}  // namespace cairn::io
