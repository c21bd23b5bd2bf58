// Runs the steps of checkpoint::make_save_plan and io::Exchange's constructor for one rank, with messages that lie
// ready.
#include "cli/plan_save.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <optional>
#include <span>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/window_io.hpp"
#include "cli/heap_meter.hpp"
#include "io/exchange_messages.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::cli {
namespace {

/// Bytes of a transfer that lie in the extents of its aggregator.
std::uint64_t bytes_of(const plan::Runs& runs, std::span<const plan::Extent> extents) {
  std::uint64_t bytes = 0;
  for (const plan::Extent& extent : extents) {
    if (extent.file == runs.file) bytes += runs.bytes_before(extent.end) - runs.bytes_before(extent.begin);
  }
  return bytes;
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

plan::ExtentMap assign_to_all(const plan::HfLayout& files, const plan::FileLayout& layout, int ranks,
                              std::uint64_t block_bytes) {
  return {plan::whole_files(checkpoint::file_sizes(layout.stored)), ranks, block_bytes,
          plan::Assignment{{}, files.section_of_files()}};
}

PlanWorld::PlanWorld(const PlanInput& input)
    : input_(input), ranks_(input.map.layout().world_size()), messages_(ranks_), traffic_(index(ranks_)) {
  exchange_catalog();
  lay_out();
  exchange_claims();
  count_extents();
  for (int rank = 0; rank < ranks_; ++rank) count_transfers(rank, transfers_of(rank));
  check_sums();
}

PlanWorld::Described PlanWorld::describe(int rank) const {
  const std::vector<shard::HeldTensor> held = input_.map.held_by(rank);
  Described described{sources_of(input_, held), {}, {}};
  described.boxes = checkpoint::memory_boxes(std::span<const Source>(described.sources));
  if (number_of_tensor_.empty()) return described;  // there is no catalog yet
  for (const shard::HeldTensor& tensor : held) described.tensor_of_shard.push_back(number_of_tensor_[tensor.tensor]);
  return described;
}

void PlanWorld::exchange_catalog() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Described described = describe(rank);
    checkpoint::check_shards(std::span<const Source>(described.sources));
    for (const plan::MemoryBox& box : described.boxes) traffic_[index(rank)].held_bytes += box.bytes.size();
    messages_.descriptions.post(rank, checkpoint::describe_to_homes({described.sources}, rank, ranks_));
  }
  std::vector<std::vector<plan::CatalogTensor>> homed;
  for (int rank = 0; rank < ranks_; ++rank) {
    homed.push_back(checkpoint::merge_described(messages_.descriptions.deliver(rank)));
    messages_.samples.push_back(checkpoint::sample_names(homed.back(), rank, ranks_));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (homed[index(rank)].empty()) continue;
    messages_.spread.post(rank, checkpoint::spread_in_order(homed[index(rank)], messages_.samples));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    messages_.stretches.push_back(checkpoint::pack_stretch(messages_.spread.deliver(rank)));
  }
}

void PlanWorld::lay_out() {
  const Options& options = input_.options;
  files_ = std::make_unique<plan::HfLayout>(
      plan::PackedCatalog(messages_.stretches),
      plan::LayoutOptions{options.files.max_bytes, options.files.align_bytes, options.files.metadata});
  for (int rank = 0; rank < ranks_; ++rank) {
    messages_.header_shares.push_back(checkpoint::header_sizes_of_share(*files_, rank, ranks_));
    messages_.index_shares.push_back(checkpoint::indexes_of_share(*files_, rank, ranks_));
  }
  for (std::size_t i = 0; i < input_.state.tensors.size(); ++i) {
    const auto number = files_->catalog().find(input_.state.sections[i], input_.state.tensors[i].name);
    if (!number) {
      throw Error(ErrorKind::kState, fmt::format("tensor '{}' (section {}) is held by no rank",
                                                 base::printable(input_.state.tensors[i].name),
                                                 base::printable(input_.state.sections[i])));
    }
    number_of_tensor_.push_back(*number);
  }
  layout_ = files_->without_content(checkpoint::join_header_sizes(*files_, messages_.header_shares));
  layout_.stored.tensors.resize(files_->catalog().size());
  for (std::uint32_t file = 0; file < files_->files(); ++file) {
    files_->add_file(layout_, file, files_->header_of(file));
  }
  extents_ = std::make_unique<plan::ExtentMap>(assign_to_all(*files_, layout_, ranks_, options.files.block_bytes));
}

void PlanWorld::exchange_claims() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Described described = describe(rank);
    messages_.claims.post(rank, checkpoint::claim_boxes(described.boxes, described.tensor_of_shard, rank, ranks_));
  }
  const int homes = static_cast<int>(std::min<std::uint64_t>(index(ranks_), files_->catalog().size()));
  for (int home = 0; home < homes; ++home) {
    messages_.provisions.post(home, checkpoint::settle_claims(files_->catalog(), messages_.claims.deliver(home), home));
  }
}

void PlanWorld::count_extents() {
  for (int rank = 0; rank < ranks_; ++rank) {
    RankTraffic& traffic = traffic_[index(rank)];
    for (const plan::Extent& extent : extents_->of(rank)) {
      ++traffic.extents;
      traffic.extent_bytes += extent.end - extent.begin;
    }
    rounds_ = std::max(rounds_, windows_of(rank, *extents_, input_.options).size());
  }
}

std::vector<plan::Runs> PlanWorld::transfers_of(int rank) const {
  const Described described = describe(rank);
  const auto pieces = checkpoint::collect_pieces(messages_.provisions.deliver(rank), rank);
  return plan::transfers_of_memory(pieces, described.boxes, layout_.stored, *extents_);
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
    mine.sent_bytes += bytes;
    theirs.received_bytes += bytes;
    if (is_next_aggregator) ++mine.peers;
  }
}

void PlanWorld::check_sums() const {
  std::uint64_t provided = 0;
  std::uint64_t written = 0;
  for (const RankTraffic& traffic : traffic_) {
    provided += traffic.local_bytes + traffic.sent_bytes;
    written += traffic.extent_bytes;
  }
  if (provided == input_.state.bytes && written == extents_->total_bytes()) return;
  throw Error(ErrorKind::kInternal, fmt::format("the plan moves {} of {} bytes and writes {} of {}", provided,
                                                input_.state.bytes, written, extents_->total_bytes()));
}

void PlanWorld::keep_records(const std::vector<int>& ranks) {
  messages_.records.keep_only(ranks);
  for (int rank = 0; rank < ranks_; ++rank) messages_.records.post(rank, records_of(transfers_of(rank), ranks_));
}
namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Replay {
 public:
  Replay(const PlanWorld& world, int rank) : world_(world), messages_(world.messages()), rank_(rank) {}

  RankCost run() {
    cost_.rank = rank_;
    describe();
    make_catalog();
    assign_files();
    settle_claims();
    place();
    plan_transfers();
    plan_exchange();
    check();
    for (const StepCost& step : cost_.steps) {
      cost_.seconds += step.seconds;
      cost_.peak_bytes = std::max(cost_.peak_bytes, step.peak_bytes);
    }
    held_.clear();
    sources_ = {};
    boxes_ = {};
    cost_.kept_bytes = heap_.live_bytes();
    return cost_;
  }

 private:
  /// Time and memory of `work` go to a step.
  void measure(std::string_view step, const std::function<void()>& work) {
    StepCost& cost = cost_.steps[static_cast<std::size_t>(std::ranges::find(kPlanSteps, step) - kPlanSteps.begin())];
    heap_.begin_peak();
    const double begin = processor_seconds();
    work();
    cost.seconds += processor_seconds() - begin;
    cost.peak_bytes = std::max(cost.peak_bytes, heap_.peak_bytes());
  }

  void describe() {
    measure("shards", [&] {
      held_ = world_.input().map.held_by(rank_);
      sources_ = sources_of(world_.input(), held_);
    });
    measure("describe", [&] {
      checkpoint::check_shards(std::span<const Source>(sources_));
      boxes_ = checkpoint::memory_boxes(std::span<const Source>(sources_));
      step_messages_ = checkpoint::describe_to_homes({sources_}, rank_, world_.ranks());
    });
  }

  void make_catalog() {
    std::vector<plan::CatalogTensor> homed;
    step_messages_ = messages_.descriptions.deliver(rank_);
    measure("catalog", [&] {
      homed = checkpoint::merge_described(step_messages_);
      mine_ = checkpoint::sample_names(homed, rank_, world_.ranks());
    });
    step_messages_ = messages_.samples;
    measure("catalog", [&] { step_messages_ = checkpoint::spread_in_order(homed, step_messages_); });
    step_messages_ = messages_.spread.deliver(rank_);
    measure("catalog", [&] { mine_ = checkpoint::pack_stretch(step_messages_); });
    step_messages_ = messages_.stretches;
    measure("catalog", [&] {
      catalog_ = plan::PackedCatalog(step_messages_);
      step_messages_ = {};
    });
  }

  void assign_files() {
    const Options& options = world_.input().options;
    measure("files", [&] {
      tensor_of_shard_ = checkpoint::number_tensors(catalog_, sources_);
      files_.emplace(std::move(catalog_),
                     plan::LayoutOptions{options.files.max_bytes, options.files.align_bytes, options.files.metadata});
      mine_ = checkpoint::header_sizes_of_share(*files_, rank_, world_.ranks());
    });
    step_messages_ = messages_.header_shares;
    std::vector<std::uint64_t> header_bytes;
    measure("files", [&] { header_bytes = checkpoint::join_header_sizes(*files_, step_messages_); });
    step_messages_ = {};
    measure("indexes", [&] { mine_ = checkpoint::indexes_of_share(*files_, rank_, world_.ranks()); });
    mine_ = {};
    std::map<std::string, std::string> indexes;
    if (rank_ == 0) {
      step_messages_ = messages_.index_shares;
      measure("indexes", [&] { indexes = checkpoint::join_indexes(std::move(step_messages_)); });
    }
    measure("files", [&] {
      layout_ = files_->without_content(header_bytes);
      layout_.index_files = std::move(indexes);
      extents_.emplace(assign_to_all(*files_, layout_, world_.ranks(), options.files.block_bytes));
      step_messages_ = {};
    });
  }

  void settle_claims() {
    measure("claims",
            [&] { step_messages_ = checkpoint::claim_boxes(boxes_, tensor_of_shard_, rank_, world_.ranks()); });
    step_messages_ = messages_.claims.deliver(rank_);
    measure("claims", [&] { step_messages_ = checkpoint::settle_claims(files_->catalog(), step_messages_, rank_); });
    step_messages_ = messages_.provisions.deliver(rank_);
    measure("claims", [&] {
      pieces_ = checkpoint::collect_pieces(step_messages_, rank_);
      step_messages_ = {};
    });
  }

  void place() {
    measure("places", [&] {
      places_ = checkpoint::place_pieces(layout_, *files_, pieces_);
      checkpoint::add_headers(layout_, *files_, extents_->of(rank_));
      files_.reset();
    });
  }

  void plan_transfers() {
    measure("transfers", [&] {
      transfers_ = plan::transfers_of_memory(pieces_, boxes_, places_, *extents_);
      places_ = {};
      step_messages_ = records_of(transfers_, world_.ranks());
    });
  }

  void plan_exchange() {
    const int ranks = world_.ranks();
    step_messages_ = messages_.records.deliver(rank_);
    measure("exchange", [&] {
      const Options& options = world_.input().options;
      const std::vector<plan::Window> windows = windows_of(rank_, *extents_, options);
      const std::uint64_t window_bytes = window_bytes_of(*extents_, options);
      const auto index_of = [&](int rank) {
        return io::WindowIndex(extents_->of(rank), window_bytes, options.files.block_bytes);
      };
      const auto step_to = [&](const plan::Runs& runs) { return (runs.file_rank - rank_ + ranks) % ranks; };
      std::stable_sort(transfers_.begin(), transfers_.end(),
                       [&](const auto& a, const auto& b) { return step_to(a) < step_to(b); });
      memory_side_ = io::Schedule(io::End::kMemory, world_.rounds());
      file_side_ = io::Schedule(io::End::kFile, world_.rounds());
      for (std::size_t first = 0; first < transfers_.size();) {
        const int peer = transfers_[first].file_rank;
        const io::WindowIndex theirs = index_of(peer);
        for (; first < transfers_.size() && transfers_[first].file_rank == peer; ++first) {
          memory_side_.add(transfers_[first], theirs);
        }
      }
      const io::WindowIndex mine = index_of(rank_);
      for (int step = 0; step < ranks; ++step) {
        const int from = (rank_ - step + ranks) % ranks;
        for (const plan::Runs& runs : plan::parse_runs(step_messages_[static_cast<std::size_t>(from)], rank_)) {
          ++arriving_;
          file_side_.add(runs, mine);
        }
      }
      memory_side_.finish();
      file_side_.finish();
      transfers_count_ = transfers_.size();
      transfers_ = {};
      pieces_ = {};
      step_messages_ = {};
    });
  }

  [[nodiscard]] static std::uint64_t bytes_of(const io::Schedule& side, std::uint64_t rounds) {
    std::uint64_t bytes = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) bytes += side.bytes(round);
    return bytes;
  }

  void check() const {
    const RankTraffic& expected = world_.traffic()[static_cast<std::size_t>(rank_)];
    const std::uint64_t sent = bytes_of(memory_side_, world_.rounds());
    const std::uint64_t received = bytes_of(file_side_, world_.rounds());
    if (transfers_count_ == expected.transfers && arriving_ == expected.arriving &&
        sent == expected.sent_bytes + expected.local_bytes &&
        received == expected.received_bytes + expected.local_bytes) {
      return;
    }
    throw Error(
        ErrorKind::kInternal,
        fmt::format("rank {} plans {} transfers, {} arriving, {} bytes out and {} in; the world planned {}, {}, "
                    "{} and {} for it",
                    rank_, transfers_count_, arriving_, sent, received, expected.transfers, expected.arriving,
                    expected.sent_bytes + expected.local_bytes, expected.received_bytes + expected.local_bytes));
  }

  const PlanWorld& world_;
  const PlanWorld::Messages& messages_;
  int rank_;
  HeapMeter heap_;
  RankCost cost_;
  comm::Messages step_messages_;
  base::Bytes mine_;
  std::vector<shard::HeldTensor> held_;
  std::vector<Source> sources_;
  std::vector<plan::MemoryBox> boxes_;
  std::vector<std::uint32_t> tensor_of_shard_;
  plan::PackedCatalog catalog_;
  std::optional<plan::HfLayout> files_;
  plan::FileLayout layout_;
  std::optional<plan::ExtentMap> extents_;
  std::vector<plan::Piece> pieces_;
  format::StoredCheckpoint places_;
  std::vector<plan::Runs> transfers_;
  std::uint64_t transfers_count_ = 0;
  std::uint64_t arriving_ = 0;
  io::Schedule memory_side_;
  io::Schedule file_side_;
};

}  // namespace

RankCost replay_rank(const PlanWorld& world, int rank) { return Replay(world, rank).run(); }

}  // namespace cairn::cli
