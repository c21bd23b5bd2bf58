#include "simulate/plan_world.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/progress.hpp"
#include "plan/transfers.hpp"

namespace cairn::simulate {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

/// Bytes of a transfer that lie in the extents of its aggregator.
std::uint64_t bytes_of(const plan::Runs& runs, std::span<const plan::Extent> extents) {
  std::uint64_t bytes = 0;
  for (const plan::Extent& extent : extents) {
    if (extent.file == runs.file) bytes += runs.bytes_before(extent.end) - runs.bytes_before(extent.begin);
  }
  return bytes;
}

/// Size of the windows; the same on all ranks.
std::uint64_t window_bytes_of(const plan::ExtentMap& extents, const Options& options) {
  return checkpoint::split_budget(options.limits.memory_budget_bytes, extents.block_bytes())
      .fitted_to(extents)
      .window_bytes;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<StepCost> named(std::span<const std::string_view> steps) {
  std::vector<StepCost> costs;
  for (const std::string_view step : steps) costs.push_back({step, 0, 0});
  return costs;
}

std::uint64_t bytes_of(const io::Schedule& side, std::uint64_t rounds) {
  std::uint64_t bytes = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) bytes += side.bytes(round);
  return bytes;
}

}  // namespace

MessageLog::MessageLog(int ranks)
    : boxes_(static_cast<std::size_t>(ranks)), is_kept_(boxes_.size(), true), volumes_(boxes_.size()) {}

void MessageLog::keep_only(const std::vector<int>& ranks) {
  is_kept_.assign(is_kept_.size(), false);
  for (const int rank : ranks) is_kept_.at(static_cast<std::size_t>(rank)) = true;
}

std::uint32_t MessageLog::number_of(const base::Bytes& content) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  if (const auto known = number_of_content_.find(text); known != number_of_content_.end()) return known->second;
  if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < content.size()) {
    chunks_.emplace_back().reserve(std::max(kChunkBytes, content.size()));
  }
  base::Bytes& chunk = chunks_.back();  // never grows beyond its reserve: views stay valid
  const auto begin = chunk.insert(chunk.end(), content.begin(), content.end());
  const auto number = base::narrow<std::uint32_t>(contents_.size(), "number of messages");
  contents_.emplace_back(reinterpret_cast<const char*>(&*begin), content.size());
  number_of_content_.emplace(contents_.back(), number);
  return number;
}

void MessageLog::post(int from, const comm::Messages& outgoing) {
  const auto sender = static_cast<std::size_t>(from);
  for (std::size_t to = 0; to < outgoing.size(); ++to) {
    if (outgoing[to].empty()) continue;
    if (to != sender) {
      volumes_[sender].sent_bytes += outgoing[to].size();
      volumes_[to].received_bytes += outgoing[to].size();
    }
    if (is_kept_[to]) boxes_[to].push_back({static_cast<std::uint32_t>(from), number_of(outgoing[to])});
  }
}

comm::Messages MessageLog::deliver(int to) const {
  comm::Messages messages(boxes_.size());
  for (const Letter& letter : boxes_.at(static_cast<std::size_t>(to))) {
    const std::span<const std::byte> content = base::as_bytes(contents_[letter.content]);
    messages[letter.from].assign(content.begin(), content.end());
  }
  return messages;
}

std::vector<MessageVolume> volumes_to_root(const comm::Messages& messages) {
  std::vector<MessageVolume> volumes;
  for (const base::Bytes& bytes : messages) volumes.push_back({bytes.size(), 0});
  volumes.front().sent_bytes = 0;
  for (const MessageVolume& volume : volumes) volumes.front().received_bytes += volume.sent_bytes;
  return volumes;
}

std::vector<MessageVolume> volumes_of_gathered(const comm::Messages& messages) {
  std::uint64_t all = 0;
  for (const base::Bytes& bytes : messages) all += bytes.size();
  std::vector<MessageVolume> volumes;
  for (const base::Bytes& bytes : messages) volumes.push_back({bytes.size(), all - bytes.size()});
  return volumes;
}

PlanWorld::PlanWorld(const PlanInput& input)
    : input_(input), ranks_(input.map.layout().world_size()), traffic_(index(ranks_)), records_(ranks_) {}

void PlanWorld::keep_records(const std::vector<int>& ranks) {
  records_.keep_only(ranks);
  for_each_rank("keeping records", [&](int rank) { records_.post(rank, records_of(transfers_of(rank), ranks_)); });
}

void PlanWorld::count_traffic() {
  const std::uint64_t window_bytes = window_bytes_of(*extents_, input_.options);
  for (int rank = 0; rank < ranks_; ++rank) {
    RankTraffic& traffic = traffic_[index(rank)];
    const std::vector<plan::Extent> extents = extents_->of(rank);
    for (const plan::Extent& extent : extents) {
      ++traffic.extents;
      traffic.extent_bytes += extent.end - extent.begin;
    }
    traffic.windows = plan::cut_windows(extents, window_bytes, extents_->block_bytes()).size();
    rounds_ = std::max(rounds_, traffic.windows);
  }
  for_each_rank("planning transfers", [&](int rank) { count_transfers(rank, transfers_of(rank)); });
}

void PlanWorld::count_transfers(int rank, const std::vector<plan::Runs>& transfers) {
  RankTraffic& mine = traffic_[index(rank)];
  std::vector<plan::Extent> extents;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const int aggregator = transfers[i].file_rank;
    const bool is_next_aggregator = i == 0 || transfers[i - 1].file_rank != aggregator;
    if (is_next_aggregator) extents = extents_->of(aggregator);
    const std::uint64_t bytes = bytes_of(transfers[i], extents);
    RankTraffic& theirs = traffic_[index(aggregator)];
    ++mine.transfers;
    ++theirs.arriving;
    if (aggregator == rank) {
      mine.local_bytes += bytes;
      continue;
    }
    mine.away_bytes += bytes;
    const int of_node = input_.ranks_per_node;
    if (of_node != 0 && rank / of_node != aggregator / of_node) mine.far_bytes += bytes;
    theirs.served_bytes += bytes;
    if (is_next_aggregator) ++mine.peers;
  }
}

void PlanWorld::for_each_rank(std::string_view phase, const std::function<void(int)>& work) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    work(rank);
    checkpoint::report_progress(phase, checkpoint::share_of_bytes(input_.state.bytes, index(rank) + 1, index(ranks_)),
                                input_.state.bytes);
  }
}

int rank_with_most(int ranks, const std::function<std::uint64_t(int)>& value) {
  int best = 0;
  for (int rank = 1; rank < ranks; ++rank) {
    if (value(rank) > value(best)) best = rank;
  }
  return best;
}

int most_received(const std::vector<MessageVolume>& volumes) {
  return rank_with_most(static_cast<int>(volumes.size()),
                        [&](int rank) { return volumes[index(rank)].received_bytes; });
}

plan::ExtentMap assign_to_all(std::vector<plan::FileRange> ranges, std::vector<std::uint32_t> group_of_file, int ranks,
                              std::uint64_t block_bytes) {
  return {std::move(ranges), ranks, block_bytes, plan::Assignment{{}, std::move(group_of_file)}};
}

comm::Messages records_of(const std::vector<plan::Runs>& transfers, int ranks) {
  comm::Messages messages(index(ranks));
  for (const plan::Runs& runs : transfers) plan::append_runs(messages[index(runs.file_rank)], runs);
  return messages;
}

Replay::Replay(const PlanWorld& world, int rank, std::span<const std::string_view> steps)
    : world_(world), cost_{rank, named(steps), 0, 0, 0} {}

void Replay::measure(std::string_view step, const std::function<void()>& work) {
  StepCost& cost = *std::ranges::find(cost_.steps, step, &StepCost::name);
  heap_.begin_peak();
  const double begin = processor_seconds();
  work();
  cost.seconds += processor_seconds() - begin;
  cost.peak_bytes = std::max(cost.peak_bytes, heap_.peak_bytes());
}

void Replay::plan_exchange(std::vector<plan::Runs> transfers, const plan::ExtentMap& extents) {
  const int ranks = world_.ranks();
  step_messages_ = world_.records().deliver(rank());
  measure("exchange", [&] {
    const std::uint64_t window_bytes = window_bytes_of(extents, world_.input().options);
    const auto index_of = [&](int rank) {
      return io::WindowIndex(extents.of(rank), window_bytes, extents.block_bytes());
    };
    const auto step_to = [&](const plan::Runs& runs) { return (runs.file_rank - rank() + ranks) % ranks; };
    std::stable_sort(transfers.begin(), transfers.end(),
                     [&](const auto& a, const auto& b) { return step_to(a) < step_to(b); });
    memory_side_ = io::Schedule(io::End::kMemory, world_.rounds(), io::ExchangeOptions().largest_message_bytes);
    file_side_ = io::Schedule(io::End::kFile, world_.rounds(), io::ExchangeOptions().largest_message_bytes);
    for (std::size_t first = 0; first < transfers.size();) {
      const int peer = transfers[first].file_rank;
      const io::WindowIndex theirs = index_of(peer);
      for (; first < transfers.size() && transfers[first].file_rank == peer; ++first) {
        memory_side_.add(transfers[first], theirs);
      }
    }
    const std::vector<plan::Window> windows =
        plan::cut_windows(extents.of(rank()), window_bytes, extents.block_bytes());
    const io::WindowIndex mine = index_of(rank());
    for (int step = 0; step < ranks; ++step) {
      const int from = (rank() - step + ranks) % ranks;
      for (const plan::Runs& runs : plan::parse_runs(step_messages_[index(from)], rank())) {
        ++arriving_;
        file_side_.add(runs, mine);
      }
    }
    memory_side_.finish();
    file_side_.finish();
    transfers_ = transfers.size();
    transfers = {};
    step_messages_ = {};
  });
}

RankCost Replay::finish() {
  check();
  for (const StepCost& step : cost_.steps) {
    cost_.seconds += step.seconds;
    cost_.peak_bytes = std::max(cost_.peak_bytes, step.peak_bytes);
  }
  cost_.kept_bytes = heap_.live_bytes();
  return std::move(cost_);
}

void Replay::check() const {
  const RankTraffic& expected = world_.traffic()[index(rank())];
  const std::uint64_t of_memory = bytes_of(memory_side_, world_.rounds());
  const std::uint64_t of_extents = bytes_of(file_side_, world_.rounds());
  if (transfers_ == expected.transfers && arriving_ == expected.arriving &&
      of_memory == expected.away_bytes + expected.local_bytes &&
      of_extents == expected.served_bytes + expected.local_bytes) {
    return;
  }
  throw base::internal_error(
      fmt::format("rank {} plans {} transfers of its memory, {} of its extents, {} bytes and {}; the world "
                  "planned {}, {}, {} and {} for it",
                  rank(), transfers_, arriving_, of_memory, of_extents, expected.transfers, expected.arriving,
                  expected.away_bytes + expected.local_bytes, expected.served_bytes + expected.local_bytes));
}

}  // namespace cairn::simulate
