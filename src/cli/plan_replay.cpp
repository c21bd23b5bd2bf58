// Runs the steps of checkpoint::make_save_plan and io::Exchange's constructor for one rank, with messages that lie ready.
#include "cli/plan_replay.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <optional>

#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/window_io.hpp"
#include "cli/heap_meter.hpp"
#include "io/exchange_schedule.hpp"
#include "planning/claim_steps.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::cli {
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
    deal_files();
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
      boxes_ = checkpoint::local_boxes(std::span<const Source>(sources_));
      mail_ = checkpoint::describe_to_homes({sources_}, rank_, world_.ranks());
    });
  }

  void make_catalog() {
    std::vector<plan::CatalogTensor> homed;
    mail_ = messages_.descriptions.deliver(rank_);
    measure("catalog", [&] {
      homed = checkpoint::merge_described(mail_);
      mine_ = checkpoint::sample_names(homed, rank_, world_.ranks());
    });
    mail_ = messages_.samples;
    measure("catalog", [&] { mail_ = checkpoint::spread_in_order(homed, mail_); });
    mail_ = messages_.spread.deliver(rank_);
    measure("catalog", [&] { mine_ = checkpoint::pack_stretch(mail_); });
    mail_ = messages_.stretches;
    measure("catalog", [&] {
      catalog_ = plan::PackedCatalog(mail_);
      mail_ = {};
    });
  }

  void deal_files() {
    const Options& options = world_.input().options;
    measure("files", [&] {
      tensor_of_shard_ = checkpoint::number_tensors(catalog_, sources_);
      files_.emplace(std::move(catalog_),
                     plan::LayoutOptions{options.max_file_bytes, options.align_bytes, options.file_metadata});
      mine_ = checkpoint::header_sizes_of_share(*files_, rank_, world_.ranks());
    });
    mail_ = messages_.header_shares;
    std::vector<std::uint64_t> header_bytes;
    measure("files", [&] { header_bytes = checkpoint::join_header_sizes(*files_, mail_); });
    mail_ = {};
    measure("indexes", [&] { mine_ = checkpoint::indexes_of_share(*files_, rank_, world_.ranks()); });
    mine_ = {};
    std::map<std::string, std::string> indexes;
    if (rank_ == 0) {
      mail_ = messages_.index_shares;
      measure("indexes", [&] { indexes = checkpoint::join_indexes(std::move(mail_)); });
    }
    measure("files", [&] {
      layout_ = files_->without_content(header_bytes);
      layout_.index_files = std::move(indexes);
      extents_.emplace(deal_to_all(*files_, layout_, world_.ranks(), options.block_bytes));
      mail_ = {};
    });
  }

  void settle_claims() {
    const checkpoint::NumberedBoxes mine{boxes_, tensor_of_shard_};
    measure("claims", [&] { mail_ = checkpoint::claim_boxes(mine, world_.ranks()); });
    mail_ = messages_.claims.deliver(rank_);
    measure("claims", [&] { mail_ = checkpoint::settle_claims(files_->catalog(), mail_, rank_); });
    mail_ = messages_.provisions.deliver(rank_);
    measure("claims", [&] {
      parts_ = checkpoint::collect_parts(mail_, mine);
      mail_ = {};
    });
  }

  void place() {
    measure("places", [&] {
      checkpoint::add_needed_content(layout_, *files_, extents_->of(rank_), parts_);
      files_.reset();
    });
  }

  void plan_transfers() {
    measure("transfers", [&] {
      transfers_ = plan::transfers_of_memory(rank_, parts_, layout_.stored, *extents_);
      mail_ = records_of(transfers_, world_.ranks());
    });
  }

  void plan_exchange() {
    const int ranks = world_.ranks();
    mail_ = messages_.records.deliver(rank_);
    measure("exchange", [&] {
      const Options& options = world_.input().options;
      const std::vector<plan::Window> windows = windows_of(rank_, *extents_, options);
      const auto step_to = [&](const plan::Transfer& t) { return (t.extent_rank - rank_ + ranks) % ranks; };
      std::stable_sort(transfers_.begin(), transfers_.end(),
                       [&](const auto& a, const auto& b) { return step_to(a) < step_to(b); });
      memory_side_ = extent_side_ = io::Schedule(world_.rounds());
      for (std::size_t first = 0; first < transfers_.size();) {
        const int peer = transfers_[first].extent_rank;
        const io::WindowIndex theirs(windows_of(peer, *extents_, options));
        for (; first < transfers_.size() && transfers_[first].extent_rank == peer; ++first) {
          memory_side_.add(transfers_[first], layout_.stored, theirs, peer);
        }
      }
      const io::WindowIndex mine(windows);
      for (int step = 0; step < ranks; ++step) {
        const int from = (rank_ - step + ranks) % ranks;
        for (const plan::Transfer& transfer : plan::parse_records(mail_[static_cast<std::size_t>(from)])) {
          ++arriving_;
          extent_side_.add(transfer, layout_.stored, mine, from);
        }
      }
      memory_side_.finish();
      extent_side_.finish();
      transfers_count_ = transfers_.size();
      transfers_ = {};
      parts_ = {};
      mail_ = {};
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
    const std::uint64_t received = bytes_of(extent_side_, world_.rounds());
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
  comm::Mail mail_;
  base::Bytes mine_;
  std::vector<shard::HeldTensor> held_;
  std::vector<Source> sources_;
  std::vector<checkpoint::LocalBox> boxes_;
  std::vector<std::uint32_t> tensor_of_shard_;
  plan::PackedCatalog catalog_;
  std::optional<plan::HfLayout> files_;
  plan::FileLayout layout_;
  std::optional<plan::ExtentMap> extents_;
  std::vector<plan::MemoryPart> parts_;
  std::vector<plan::Transfer> transfers_;
  std::uint64_t transfers_count_ = 0;
  std::uint64_t arriving_ = 0;
  io::Schedule memory_side_;
  io::Schedule extent_side_;
};

}  // namespace

RankCost replay_rank(const PlanWorld& world, int rank) { return Replay(world, rank).run(); }

}  // namespace cairn::cli
