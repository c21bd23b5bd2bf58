// Sends the transfers to their aggregators once, then makes rounds of messages (exchange_messages.hpp).
#include "io/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "io/exchange_messages.hpp"
#include "plan/transfers.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kLargestSlotBytes = 1ULL << 20;  // small enough to stay in a core's cache between packing and
                                                         // sending
constexpr std::uint64_t kSmallestBufferBytes = 16ULL << 10;

void require(bool condition, std::string_view what, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!condition) throw base::internal_error("exchange: " + std::string(what), file, line);
}

/// Both ends check a transfer before using it.
void check_transfer(const plan::Runs& runs, std::span<const format::StoredFile> files) {
  plan::check_runs(runs);
  require(runs.file < files.size(), plan::to_string(runs) + " are of file number " + std::to_string(runs.file) +
                                        ", and there are " + std::to_string(files.size()));
  const format::StoredFile& file = files[runs.file];
  require(runs.file_end() <= file.size_bytes, plan::to_string(runs) + " end at byte " +
                                                  std::to_string(runs.file_end()) + " of a file of " +
                                                  std::to_string(file.size_bytes));
}

/// Position of a pair in every round: in each step a rank has one partner per direction (exchange_messages.hpp).
int step_of(int memory_rank, int file_rank, int ranks) { return (file_rank - memory_rank + ranks) % ranks; }

/// The least size, and the kind, that a rank's transfers need a memory box to have.
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

/// Appends the transfers of one batch to a message that may hold several batches, each after its number and its size in
/// bytes. If there is only one batch, it has no such head.
class Sections {
 public:
  Sections(base::Bytes& out, std::size_t batches) : out_(out), has_heads_(batches > 1) {}
  void append(std::size_t batch, const plan::Runs& runs) {
    if (has_heads_ && head_ == kNone) {
      head_ = out_.size();
      out_.resize(out_.size() + sizeof(Head));
    }
    plan::append_runs(out_, runs);
    if (!has_heads_) return;
    const Head head{batch, out_.size() - head_ - sizeof(Head)};
    std::memcpy(out_.data() + head_, &head, sizeof head);
  }

  /// Calls visit(batch, bytes of its transfers) for each batch in the order of the message.
  template <class Visit>
  static void for_each(std::span<const std::byte> message, std::size_t batches, const Visit& visit) {
    if (batches == 1) return visit(std::size_t{0}, message);
    base::ByteReader in(message);
    while (!in.done()) {
      const std::uint64_t batch = in.u64();
      require(batch < batches, "transfers of batch " + std::to_string(batch) + " of " + std::to_string(batches));
      visit(static_cast<std::size_t>(batch), in.raw(in.u64()));
    }
  }

 private:
  struct Head {
    std::uint64_t batch = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  base::Bytes& out_;
  bool has_heads_;
  std::size_t head_ = kNone;
};

}  // namespace

struct Exchange::State {
  std::uint64_t slot_bytes = 0;
  std::vector<std::vector<MemoryNeed>> memory_needs;  // needs of each batch, by Runs::local
  Schedule memory_side;                               // this rank's memory and the windows of ranks that it cannot
                                                      // reach
  Schedule file_side;                                 // this rank's windows and the memory of ranks that it cannot
                                                      // reach
  Schedule local;                                     // this rank's memory and the windows that it can reach
  SlotArena memory_slots;
  SlotArena file_slots;
  std::vector<bool> reached;  // by rank: whether transfers to its windows are in `local`, not `memory_side`
  // By rank: windows of the reached ranks in the current round. The first round allocates the list, so that no later
  // round can fail on one rank alone.
  std::vector<std::byte*> buffers;

  void schedule_own(std::vector<plan::Runs> mine, const std::function<WindowIndex(int)>& windows_of,
                    const WindowPool& pool);
  void check_memory(std::size_t batch, std::span<const plan::MemoryBox> memory) const;
};

void Exchange::State::schedule_own(std::vector<plan::Runs> mine, const std::function<WindowIndex(int)>& windows_of,
                                   const WindowPool& pool) {
  memory_needs.push_back(io::memory_needs(mine));
  const auto is_away = [&](const plan::Runs& runs) { return !pool.reaches(runs.file_rank); };
  const std::size_t count_away = static_cast<std::size_t>(std::ranges::count_if(mine, is_away));
  std::vector<plan::Runs> away;
  if (count_away == mine.size()) {
    away.swap(mine);
  } else if (count_away != 0) {
    away.reserve(count_away);
    std::ranges::copy_if(mine, std::back_inserter(away), is_away);
    std::erase_if(mine, is_away);
  }
  local.add(std::move(mine), windows_of);
  memory_side.add(std::move(away), windows_of);
}

Rounds cut_rounds(comm::Communicator& communicator, plan::ExtentMaps extents, std::uint64_t window_bytes) {
  Rounds rounds;
  std::vector<std::vector<plan::Window>> windows;
  comm::agree(communicator, "exchange: cut windows", [&] {
    rounds.first.resize(extents.size() + 1);
    for (std::size_t batch = 0; batch < extents.size(); ++batch) {
      const plan::ExtentMap& map = extents[batch];
      windows.push_back(plan::cut_windows(map.of(communicator.rank()), window_bytes, map.block_bytes()));
      rounds.first[batch + 1] = windows.back().size();
    }
  });
  communicator.all_reduce(rounds.first, comm::ReduceOp::kMax);
  std::partial_sum(rounds.first.begin(), rounds.first.end(), rounds.first.begin());
  comm::agree(communicator, "exchange: cut windows", [&] {
    for (std::size_t batch = 0; batch < windows.size(); ++batch) {
      if (windows[batch].empty()) continue;
      rounds.windows.resize(rounds.first[batch]);
      std::move(windows[batch].begin(), windows[batch].end(), std::back_inserter(rounds.windows));
    }
  });
  return rounds;
}

Exchange::Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files,
                   const plan::ExtentMap& extents, std::uint64_t window_bytes, WindowPool& pool,
                   std::vector<plan::Runs> mine, ExchangeOptions options)
    : communicator_(communicator), pool_(&pool), device_(options.device) {
  std::vector<std::vector<plan::Runs>> batches;
  comm::agree(communicator, "exchange: describe transfers", [&] { batches.push_back(std::move(mine)); });
  make(files, extents, window_bytes, std::move(batches), options);
}

Exchange::Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files,
                   plan::ExtentMaps extents, std::uint64_t window_bytes, WindowPool& pool,
                   std::vector<std::vector<plan::Runs>> mine, ExchangeOptions options)
    : communicator_(communicator), pool_(&pool), device_(options.device) {
  make(files, extents, window_bytes, std::move(mine), options);
}

/// Collective: sends the transfers to their aggregators, and schedules them on both ends.
void Exchange::make(std::span<const format::StoredFile> files, plan::ExtentMaps extents, std::uint64_t window_bytes,
                    std::vector<std::vector<plan::Runs>> mine, ExchangeOptions options) {
  const int rank = communicator_.rank();
  const int ranks = communicator_.size();
  rounds_ = cut_rounds(communicator_, extents, window_bytes);
  std::vector<base::Bytes> outgoing;
  comm::agree(communicator_, "exchange: describe transfers", [&] {
    state_ = std::make_unique<State>();
    for (int peer = 0; peer < ranks; ++peer) state_->reached.push_back(pool_->reaches(peer));
    outgoing.resize(static_cast<std::size_t>(ranks));
    require(mine.size() == extents.size(), "transfers of another number of batches");
    for (std::size_t batch = 0; batch < extents.size(); ++batch) {
      require(extents[batch].ranks() <= ranks, "more aggregators than ranks");
    }
    for (const plan::Window& window : rounds_.windows) {
      require(window.buffer_bytes <= pool_->bytes(), "a window of " + std::to_string(window.buffer_bytes) +
                                                         " bytes and a buffer of " + std::to_string(pool_->bytes()));
    }
    const auto step_to = [&](const plan::Runs& runs) { return step_of(rank, runs.file_rank, ranks); };
    for (std::size_t batch = 0; batch < mine.size(); ++batch) {
      for (const plan::Runs& runs : mine[batch]) {
        check_transfer(runs, files);
        require(runs.file_rank >= 0 && runs.file_rank < ranks, plan::to_string(runs) + ": there is no such rank");
        require(runs.memory_rank == rank, plan::to_string(runs) + " are not of this rank's memory");
        require(runs.memory == Memory::kHost || device_ != nullptr,
                plan::to_string(runs) + " are in device memory, and there is nothing to copy them with");
        has_device_memory_ = has_device_memory_ || runs.memory == Memory::kDevice;
      }
      std::stable_sort(mine[batch].begin(), mine[batch].end(),
                       [&](const auto& a, const auto& b) { return step_to(a) < step_to(b); });
      append_to_messages(batch, mine[batch], mine.size(), outgoing);
    }
  });
  const std::vector<base::Bytes> incoming = communicator_.all_to_all(std::move(outgoing));
  has_device_memory_ = communicator_.max(has_device_memory_ ? 1 : 0) != 0;
  options.buffer_bytes = std::max(communicator_.min(options.buffer_bytes), kSmallestBufferBytes);

  comm::agree(communicator_, "exchange: plan rounds", [&] {
    const auto windows_of = [&](std::size_t batch, int peer) {
      return WindowIndex(extents[batch].of(peer), window_bytes, extents[batch].block_bytes(), rounds_.first[batch]);
    };
    State& state = *state_;
    state.memory_side = Schedule(End::kMemory, rounds_.count(), options.largest_message_bytes);
    state.file_side = Schedule(End::kFile, rounds_.count(), options.largest_message_bytes);
    state.local = Schedule(End::kMemory, rounds_.count(), options.largest_message_bytes);
    if (mine.size() > 1) {
      std::size_t away = 0;
      std::size_t all = 0;
      for (const std::vector<plan::Runs>& batch : mine) {
        all += batch.size();
        for (const plan::Runs& runs : batch) away += pool_->reaches(runs.file_rank) ? 0 : 1;
      }
      state.local.reserve(all - away);
      state.memory_side.reserve(away);
    }
    std::vector<WindowIndex> own_windows;
    for (std::size_t batch = 0; batch < mine.size(); ++batch) {
      state.schedule_own(
          std::exchange(mine[batch], {}), [&](int peer) { return windows_of(batch, peer); }, *pool_);
      own_windows.push_back(windows_of(batch, rank));
    }
    for (int step = 0; step < ranks; ++step) {
      const int from = (rank - step + ranks) % ranks;
      const auto add = [&](std::size_t batch, std::span<const std::byte> bytes) {
        for (const plan::Runs& runs : plan::parse_runs(bytes, rank)) {
          check_transfer(runs, files);
          require(runs.memory_rank == from, plan::to_string(runs) + " came from rank " + std::to_string(from));
          state.file_side.add(runs, own_windows[batch]);
        }
      };
      Sections::for_each(incoming[static_cast<std::size_t>(from)], extents.size(), add);
    }
    state.memory_side.finish();
    state.file_side.finish();
    state.local.finish();
    // Each direction gets half of the budget, and at least two slots, so that packing and sending overlap.
    state.slot_bytes = std::min(options.buffer_bytes / 4, kLargestSlotBytes);
    const std::uint64_t slots = options.buffer_bytes / 2 / state.slot_bytes;
    if (state.memory_side.has_packed_items()) state.memory_slots = SlotArena(state.slot_bytes, slots);
    if (state.file_side.has_packed_items()) state.file_slots = SlotArena(state.slot_bytes, slots);
  });
}

/// `mine`: this rank's transfers of one batch, sorted by step. Transfers are sent only to aggregators whose windows
/// this rank cannot reach.
void Exchange::append_to_messages(std::size_t batch, std::span<const plan::Runs> mine, std::size_t batches,
                                  std::vector<base::Bytes>& outgoing) const {
  for (auto first = mine.begin(); first != mine.end();) {
    const int peer = first->file_rank;
    const auto end = std::find_if(first, mine.end(), [&](const plan::Runs& runs) { return runs.file_rank != peer; });
    Sections sections(outgoing[static_cast<std::size_t>(peer)], batches);
    for (; first != end; ++first) {
      if (!pool_->reaches(peer)) sections.append(batch, *first);
    }
  }
}

/// Collective; has an effect only in the first round of a batch.
void Exchange::check_memory(std::string_view step, std::uint64_t round, std::span<const plan::MemoryBox> memory) {
  const auto first = std::upper_bound(rounds_.first.begin(), rounds_.first.end(), round) - 1;
  if (*first != round) return;
  comm::agree(communicator_, step, [&] {
    state_->check_memory(static_cast<std::size_t>(first - rounds_.first.begin()), memory);
    pool_->put_buffers(round, state_->buffers);
  });
}

Exchange::~Exchange() {
  if (communicator_.is_dead()) static_cast<void>(state_.release());  // unfinished messages may still use the slots
}

bool Exchange::use(WindowPool& pool) {
  for (const plan::Window& window : rounds_.windows) {
    if (window.buffer_bytes > pool.bytes()) return false;
  }
  for (std::size_t peer = 0; peer < state_->reached.size(); ++peer) {
    if (pool.reaches(static_cast<int>(peer)) != state_->reached[peer]) return false;
  }
  pool_ = &pool;
  return true;
}

void Exchange::State::check_memory(std::size_t batch, std::span<const plan::MemoryBox> memory) const {
  const std::vector<MemoryNeed>& needs = memory_needs.at(batch);
  for (std::size_t l = 0; l < needs.size(); ++l) {
    const MemoryNeed& need = needs[l];
    if (need.bytes == 0) continue;
    const std::uint64_t found = l < memory.size() ? memory[l].bytes.size() : 0;
    require(found >= need.bytes, "memory box " + std::to_string(l) + " has " + std::to_string(found) +
                                     " bytes where its transfers need " + std::to_string(need.bytes));
    require(memory[l].memory == need.memory, "memory box " + std::to_string(l) + " is in " + name_of(memory[l].memory) +
                                                 ", its transfers are of " + name_of(need.memory));
  }
}

/// Collective if any rank has device memory: waits until the bytes of a round are in their places; an error on one rank
/// is thrown on all.
void Exchange::finish_device_copies() {
  if (!has_device_memory_) return;
  comm::agree(communicator_, "copy between device and host", [&] {
    if (device_ != nullptr) device_->finish();
  });
}

std::uint64_t Exchange::gather(std::uint64_t round, std::span<const plan::MemoryBox> memory) {
  State& state = *state_;
  check_memory("gather", round, memory);
  pool_->make_window(communicator_, round);
  pool_->reset_arrived(round);
  pool_->barrier();  // from here on the other ranks may write into this rank's window
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
  pool_->barrier();  // all bytes from the node's host memory have arrived
  finish_device_copies();
  require(incoming.completed_bytes() == state.file_side.bytes(round), "bytes are missing after a gather");
  return incoming.completed_bytes() + pool_->arrived(round);
}

std::vector<plan::MemorySpan> Exchange::memory_from(std::uint64_t first_round) const {
  std::vector<plan::MemorySpan> spans;
  state_->memory_side.cover_memory(first_round, spans);
  state_->local.cover_memory(first_round, spans);
  return spans;
}

std::uint64_t Exchange::scatter(std::uint64_t round, std::span<const plan::MemoryBox> memory) {
  State& state = *state_;
  check_memory("scatter", round, memory);
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
  pool_->barrier();  // no rank reads this rank's window any more
  finish_device_copies();
  const std::uint64_t arrived = incoming.completed_bytes() + local.copied_bytes();
  require(arrived == state.memory_side.bytes(round) + state.local.bytes(round), "bytes are missing after a scatter");
  return arrived;
}

}  // namespace cairn::io
