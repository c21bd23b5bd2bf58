// Communicators with threads as ranks. Each collective checks that all ranks make the same call.
#include "simulated.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "simulated_world.hpp"

namespace cairn::comm {
namespace {

using internal::Board;
using internal::Channel;
using internal::Group;
using internal::Post;
using internal::Progress;
using internal::World;

void copy_bytes(std::span<const std::byte> from, std::span<std::byte> into) {
  if (!from.empty()) std::memcpy(into.data(), from.data(), from.size());
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kXor: return "xor";
    case ReduceOp::kOr: return "or";
  }
  return "unknown";
}

template <class T>
T combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return a + b;
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    default: break;
  }
  if constexpr (std::is_integral_v<T>) return op == ReduceOp::kXor ? a ^ b : a | b;
  return a;
}

/// Sender and receiver of a message, as ranks of a group, and the tag.
struct Route {
  int from = 0;
  int to = 0;
  int tag = 0;
};

class SimulatedRequest final : public Request {
 public:
  SimulatedRequest(std::shared_ptr<World> world, std::shared_ptr<Group> group, Route route, bool is_send)
      : world_(std::move(world)), group_(std::move(group)), route_(route), is_send_(is_send) {}

  ~SimulatedRequest() override {
    const std::lock_guard lock(world_->mutex);
    if (post_->complete) return;
    if (std::uncaught_exceptions() == 0 && !world_->was_woken(me())) {
      fmt::print(stderr, "cairn: error: {} was abandoned before it was complete\n", what());
      std::fflush(stderr);
      std::abort();
    }
    std::erase(is_send_ ? channel().sends : channel().receives, post_);  // the job has failed: the buffer is off limits
  }
  SimulatedRequest(const SimulatedRequest&) = delete;
  SimulatedRequest& operator=(const SimulatedRequest&) = delete;

  void post_send(std::span<const std::byte> data) {
    const std::lock_guard lock(world_->mutex);
    post_->from = data;
    channel().sends.push_back(post_);
    match();
  }
  void post_receive(std::span<std::byte> data) {
    const std::lock_guard lock(world_->mutex);
    post_->into = data;
    channel().receives.push_back(post_);
    match();
  }

  bool test() override {
    const std::lock_guard lock(world_->mutex);
    const Progress progress = poll();
    if (progress == Progress::kHopeless) {
      world_->mark_woken(me());
      throw internal::PeerGone(what() + " is in vain: the other rank has ended");
    }
    throw_problem();
    return progress == Progress::kReady;
  }

  void wait() override {
    std::unique_lock lock(world_->mutex);
    world_->wait(lock, me(), what(), [this] { return poll(); });
    throw_problem();
  }

 private:
  [[nodiscard]] int world_rank(int rank) const { return group_->members[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int me() const { return world_rank(is_send_ ? route_.from : route_.to); }
  [[nodiscard]] int peer() const { return world_rank(is_send_ ? route_.to : route_.from); }

  // The rest requires the mutex to be held.
  Channel& channel() { return group_->channels[{route_.from, route_.to, route_.tag}]; }

  [[nodiscard]] std::string what() const {
    return fmt::format("{} of {} bytes from rank {} to rank {} with tag {}", is_send_ ? "send" : "receive",
                       is_send_ ? post_->from.size() : post_->into.size(), route_.from, route_.to, route_.tag);
  }

  void match() {
    Channel& both = channel();
    while (!both.sends.empty() && !both.receives.empty()) {
      Post& send = *both.sends.front();
      Post& receive = *both.receives.front();
      if (send.from.size() == receive.into.size()) {
        copy_bytes(send.from, receive.into);
      } else {
        receive.problem = fmt::format(": the message has {} bytes", send.from.size());
      }
      send.complete = receive.complete = true;
      both.sends.pop_front();
      both.receives.pop_front();
      world_->wake(peer());
    }
  }

  [[nodiscard]] Progress poll() const {
    if (post_->complete) return Progress::kReady;
    return world_->has_ended(peer()) ? Progress::kHopeless : Progress::kPending;
  }

  void throw_problem() {
    if (post_->problem.empty()) return;
    throw Error(ErrorKind::kInternal, what() + std::exchange(post_->problem, {}));
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Group> group_;
  Route route_;
  bool is_send_;
  std::shared_ptr<Post> post_ = std::make_shared<Post>();
};

class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(std::shared_ptr<World> world, std::shared_ptr<Group> group, int rank)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(group_->members.size()); }

  void barrier() override {
    collective("barrier", nullptr, [](const Board&) {});
  }

  void broadcast(std::span<std::byte> data, int root) override {
    check_root(root);
    collective(fmt::format("broadcast of {} bytes from rank {}", data.size(), root), data.data(),
               [&](const Board& board) {
                 const auto* from = static_cast<const std::byte*>(board.slots[static_cast<std::size_t>(root)]);
                 if (rank_ != root) copy_bytes({from, data.size()}, data);
               });
  }

  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override { reduce(values, op, "numbers"); }
  void all_reduce(std::span<double> values, ReduceOp op) override {
    check_real_reduction(op);
    reduce(values, op, "reals");
  }

  std::vector<base::Bytes> all_to_all(std::vector<base::Bytes> outgoing) override {
    check_outgoing(outgoing.size());
    std::vector<base::Bytes> incoming(outgoing.size());
    collective("all_to_all", &outgoing, [&](const Board& board) {
      for (std::size_t from = 0; from < incoming.size(); ++from) {
        incoming[from] =
            (*static_cast<const std::vector<base::Bytes>*>(board.slots[from]))[static_cast<std::size_t>(rank_)];
      }
    });
    return incoming;
  }

  std::vector<base::Bytes> all_gather(std::span<const std::byte> mine) override {
    std::vector<base::Bytes> parts;
    collective("all_gather", &mine, [&](const Board& board) { parts = copy_spans(board); });
    return parts;
  }

  std::vector<base::Bytes> gather(std::span<const std::byte> mine, int root) override {
    check_root(root);
    std::vector<base::Bytes> parts;
    collective(fmt::format("gather to rank {}", root), &mine, [&](const Board& board) {
      if (rank_ == root) parts = copy_spans(board);
    });
    return parts;
  }

  std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) override {
    check_message(data.size(), to, tag);
    auto request = std::make_unique<SimulatedRequest>(world_, group_, Route{rank_, to, tag}, true);
    request->post_send(data);
    return request;
  }

  std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) override {
    check_message(data.size(), from, tag);
    auto request = std::make_unique<SimulatedRequest>(world_, group_, Route{from, rank_, tag}, false);
    request->post_receive(data);
    return request;
  }

  std::unique_ptr<Communicator> duplicate() override {
    barrier();  // collective, as with MPI
    return derived(fmt::format("{}/duplicate", group_->name), group_->members, rank_);
  }

  std::unique_ptr<Communicator> subgroup(int first, int last, int tag) override {
    check_subgroup(first, last, tag);
    const std::vector<int> members(group_->members.begin() + first, group_->members.begin() + last + 1);
    auto created =
        derived(fmt::format("{}/ranks {} to {} tag {}", group_->name, first, last, tag), members, rank_ - first);
    created->barrier();
    return created;
  }

  std::unique_ptr<Communicator> node() override {
    int first = rank_;
    int last = rank_;
    while (first > 0 && node_of(first - 1) == node_of(rank_)) --first;
    while (last + 1 < size() && node_of(last + 1) == node_of(rank_)) ++last;
    return subgroup(first, last, 0);
  }

  [[nodiscard]] std::string_view host_of(int rank) const override {
    constexpr std::array<std::string_view, 4> kHosts = {"node0", "node1", "node2", "node3"};
    if (node_of(0) == node_of(size() - 1)) return {};
    return kHosts[static_cast<std::size_t>(node_of(rank)) % kHosts.size()];
  }

 private:
  [[nodiscard]] int node_of(int rank) const {
    return group_->members[static_cast<std::size_t>(rank)] / world_->ranks_per_node;
  }

  /// The n-th communicator that is derived from this one under `name` has the same group on all its ranks.
  std::unique_ptr<Communicator> derived(const std::string& name, const std::vector<int>& members, int rank) {
    const int number = derived_count_[name]++;
    const std::lock_guard lock(world_->mutex);
    return std::make_unique<SimulatedCommunicator>(world_, world_->group(fmt::format("{} {}", name, number), members),
                                                   rank);
  }

  static std::vector<base::Bytes> copy_spans(const Board& board) {
    std::vector<base::Bytes> parts;
    for (const void* slot : board.slots) {
      const auto& part = *static_cast<const std::span<const std::byte>*>(slot);
      parts.emplace_back(part.begin(), part.end());
    }
    return parts;
  }

  template <class T>
  void reduce(std::span<T> values, ReduceOp op, const char* kind) {
    std::vector<T> result(values.begin(), values.end());
    collective(fmt::format("all_reduce ({}) of {} {}", name_of(op), values.size(), kind), values.data(),
               [&](const Board& board) {
                 for (std::size_t at = 0; at < result.size(); ++at) {
                   result[at] = static_cast<const T*>(board.slots[0])[at];  // in rank order: the same sum everywhere
                   for (std::size_t rank = 1; rank < board.slots.size(); ++rank) {
                     result[at] = combine(result[at], static_cast<const T*>(board.slots[rank])[at], op);
                   }
                 }
               });
    std::copy(result.begin(), result.end(), values.begin());
  }

  /// Puts `contribution` on the board, waits for all ranks, lets `take` read the board (contributions stay valid),
  /// and leaves when all ranks have read it.
  template <class Take>
  void collective(const std::string& operation, const void* contribution, Take take) {
    const int me = group_->members[static_cast<std::size_t>(rank_)];
    Board& board = group_->board;
    std::unique_lock lock(world_->mutex);
    arrive(operation, contribution);
    const std::uint64_t round = board.finished_rounds;
    try {
      world_->wait(lock, me, operation, [&] { return poll_arrivals(round); });
    } catch (...) {
      board.arrived[static_cast<std::size_t>(rank_)] = false;
      --board.arrivals;
      throw;
    }
    std::exception_ptr failure;  // for example out of memory: the others must not wait for this rank to leave
    try {
      take(board);
    } catch (...) {
      failure = std::current_exception();
    }
    if (++board.departures == size()) {
      std::fill(board.arrived.begin(), board.arrived.end(), false);
      board.arrivals = board.departures = 0;
      ++board.finished_rounds;
      wake_members();
    }
    world_->wait(lock, me, operation,
                 [&] { return board.finished_rounds > round ? Progress::kReady : Progress::kPending; });
    if (failure) std::rethrow_exception(failure);
  }

  void arrive(const std::string& operation, const void* contribution) {
    Board& board = group_->board;
    if (board.arrivals == 0) {
      board.operation = operation;
      board.first_rank = rank_;
    } else if (board.operation != operation) {
      throw Error(ErrorKind::kInternal, fmt::format("collective calls differ: rank {} is in {}, rank {} in {}", rank_,
                                                    operation, board.first_rank, board.operation));
    }
    board.slots[static_cast<std::size_t>(rank_)] = contribution;
    board.arrived[static_cast<std::size_t>(rank_)] = true;
    if (++board.arrivals == size()) {
      board.ready_rounds = board.finished_rounds + 1;
      wake_members();
    }
  }

  [[nodiscard]] Progress poll_arrivals(std::uint64_t round) const {
    const Board& board = group_->board;
    if (board.ready_rounds > round) return Progress::kReady;
    for (std::size_t rank = 0; rank < board.arrived.size(); ++rank) {
      if (!board.arrived[rank] && world_->has_ended(group_->members[rank])) return Progress::kHopeless;
    }
    return Progress::kPending;
  }

  void wake_members() {
    for (const int member : group_->members) world_->wake(member);
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Group> group_;
  int rank_;
  std::map<std::string, int> derived_count_;
};

/// The error to report: from the lowest rank that failed without being woken, otherwise from the lowest rank that was
/// woken.
std::exception_ptr choose(const World& world, const std::vector<std::exception_ptr>& thrown) {
  std::exception_ptr second_hand;
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    if (thrown[rank] == nullptr) continue;
    if (!world.was_woken(static_cast<int>(rank))) return thrown[rank];
    if (second_hand == nullptr) second_hand = thrown[rank];
  }
  return second_hand;
}

}  // namespace

void run_simulated(int ranks, const std::function<void(Communicator&)>& body, int ranks_per_node) {
  if (ranks < 1) throw Error(ErrorKind::kInternal, fmt::format("{} simulated ranks", ranks));
  const auto world = std::make_shared<World>(ranks);
  world->ranks_per_node = ranks_per_node > 0 ? ranks_per_node : ranks;
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  const auto everybody = world->group("world", members);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      world->begin(rank);
      try {
        SimulatedCommunicator communicator(world, everybody, rank);
        body(communicator);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
      world->end(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr error = choose(*world, thrown)) std::rethrow_exception(error);
}

}  // namespace cairn::comm
