// Every rank plans a save; then one rank runs the steps of checkpoint::SavePlanner and of io::Exchange's constructor,
// with the messages of the other ranks.
#include "simulate/plan_save.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/window_io.hpp"
#include "plan/transfers.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/claim_steps.hpp"
#include "planning/describe.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::simulate {
namespace {

plan::ExtentMap assign_files(const plan::HfLayout& files, const plan::FileLayout& layout, int ranks,
                             std::uint64_t block_bytes) {
  return assign_to_all(plan::whole_files(checkpoint::file_sizes(layout.stored)), files.group_of_files(), ranks,
                       block_bytes);
}

/// "shards" is the cost of the layout (ShardMap::held_by and a Source per tensor); a trainer that describes its shards
/// itself does not have this cost.
constexpr std::array<std::string_view, 9> kSteps = {"shards", "describe", "catalog",   "files",   "indexes",
                                                    "claims", "places",   "transfers", "exchange"};

class SaveReplay final : public Replay {
 public:
  SaveReplay(const SaveWorld& world, int rank)
      : Replay(world, rank, kSteps), world_(world), messages_(world.messages()) {}

  RankCost run() {
    describe();
    make_catalog();
    assign_to_ranks();
    settle_claims();
    place();
    plan_transfers();
    plan_exchange(std::move(transfers_), *extents_);
    pieces_ = {};
    held_.clear();
    sources_ = {};
    boxes_ = {};
    return finish();
  }

 private:
  void describe() {
    measure("shards", [&] {
      held_ = world_.input().map.held_by(rank());
      sources_ = shards_of<Source>(world_.input(), held_);
    });
    measure("describe", [&] {
      planning::check_shards(std::span<const Source>(sources_));
      boxes_ = planning::memory_boxes(std::span<const Source>(sources_));
      step_messages_ = planning::describe_to_homes({sources_}, rank(), world_.ranks());
    });
  }

  void make_catalog() {
    std::vector<plan::CatalogTensor> homed;
    step_messages_ = messages_.descriptions.deliver(rank());
    measure("catalog", [&] {
      homed = planning::merge_described(step_messages_);
      mine_ = planning::sample_names(homed, rank(), world_.ranks());
    });
    step_messages_ = messages_.samples;
    measure("catalog", [&] { step_messages_ = planning::spread_in_order(homed, step_messages_); });
    step_messages_ = messages_.spread.deliver(rank());
    measure("catalog", [&] { mine_ = planning::pack_stretch(step_messages_); });
    step_messages_ = messages_.stretches;
    measure("catalog", [&] {
      catalog_ = plan::PackedCatalog(step_messages_);
      step_messages_ = {};
    });
  }

  void assign_to_ranks() {
    const Options& options = world_.input().options;
    measure("files", [&] {
      tensor_of_shard_ = planning::number_tensors(catalog_, sources_);
      files_.emplace(std::move(catalog_),
                     plan::LayoutOptions{options.files.max_bytes, options.files.align_bytes, options.files.metadata});
      mine_ = planning::header_sizes_of_share(*files_, rank(), world_.ranks());
    });
    step_messages_ = messages_.header_shares;
    std::vector<std::uint64_t> header_bytes;
    measure("files", [&] { header_bytes = planning::join_header_sizes(*files_, step_messages_); });
    step_messages_ = {};
    measure("indexes", [&] { mine_ = planning::indexes_of_share(*files_, rank(), world_.ranks()); });
    mine_ = {};
    std::map<std::string, std::string> indexes;
    if (rank() == 0) {
      step_messages_ = messages_.index_shares;
      measure("indexes", [&] { indexes = planning::join_indexes(std::move(step_messages_)); });
    }
    measure("files", [&] {
      layout_ = files_->without_content(header_bytes);
      layout_.index_files = std::move(indexes);
      extents_.emplace(assign_files(*files_, layout_, world_.ranks(), options.files.block_bytes));
      step_messages_ = {};
    });
  }

  void settle_claims() {
    measure("claims",
            [&] { step_messages_ = planning::claim_boxes(boxes_, tensor_of_shard_, rank(), world_.ranks()); });
    step_messages_ = messages_.claims.deliver(rank());
    measure("claims", [&] { step_messages_ = planning::settle_claims(files_->catalog(), step_messages_, rank()); });
    step_messages_ = messages_.provisions.deliver(rank());
    measure("claims", [&] {
      pieces_ = planning::collect_pieces(step_messages_, rank());
      step_messages_ = {};
    });
  }

  void place() {
    measure("places", [&] {
      places_ = planning::place_pieces(layout_, *files_, pieces_);
      planning::add_headers(layout_, *files_, extents_->of(rank()));
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

  const SaveWorld& world_;
  const SaveWorld::Messages& messages_;
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
};

}  // namespace

SaveWorld::SaveWorld(const PlanInput& input) : PlanWorld(input), messages_(ranks_) {
  exchange_catalog();
  lay_out();
  exchange_claims();
  count_traffic();
  check_sums();
}

SaveWorld::Described SaveWorld::describe(int rank) const {
  const std::vector<shard::HeldTensor> held = input_.map.held_by(rank);
  Described described{shards_of<Source>(input_, held), {}, {}};
  described.boxes = planning::memory_boxes(std::span<const Source>(described.sources));
  if (number_of_tensor_.empty()) return described;  // there is no catalog yet
  for (const shard::HeldTensor& tensor : held) described.tensor_of_shard.push_back(number_of_tensor_[tensor.tensor]);
  return described;
}

void SaveWorld::exchange_catalog() {
  for_each_rank("planning shards", [&](int rank) {
    const Described described = describe(rank);
    planning::check_shards(std::span<const Source>(described.sources));
    for (const plan::MemoryBox& box : described.boxes) traffic_[index(rank)].memory_bytes += box.bytes.size();
    messages_.descriptions.post(rank, planning::describe_to_homes({described.sources}, rank, ranks_));
  });
  std::vector<std::vector<plan::CatalogTensor>> homed;
  for_each_rank("planning the catalog", [&](int rank) {
    homed.push_back(planning::merge_described(messages_.descriptions.deliver(rank)));
    messages_.samples.push_back(planning::sample_names(homed.back(), rank, ranks_));
  });
  for_each_rank("sorting the catalog", [&](int rank) {
    if (homed[index(rank)].empty()) return;
    messages_.spread.post(rank, planning::spread_in_order(homed[index(rank)], messages_.samples));
  });
  for (int rank = 0; rank < ranks_; ++rank) {
    messages_.stretches.push_back(planning::pack_stretch(messages_.spread.deliver(rank)));
  }
}

void SaveWorld::lay_out() {
  const Options& options = input_.options;
  files_ = std::make_unique<plan::HfLayout>(
      plan::PackedCatalog(messages_.stretches),
      plan::LayoutOptions{options.files.max_bytes, options.files.align_bytes, options.files.metadata});
  for_each_rank("planning the files", [&](int rank) {
    messages_.header_shares.push_back(planning::header_sizes_of_share(*files_, rank, ranks_));
    messages_.index_shares.push_back(planning::indexes_of_share(*files_, rank, ranks_));
  });
  for (std::size_t i = 0; i < input_.state.tensors.size(); ++i) {
    const auto number = files_->catalog().find(input_.state.sections[i], input_.state.tensors[i].name);
    if (!number) {
      throw Error(ErrorKind::kState, fmt::format("tensor '{}' (section {}) is held by no rank",
                                                 base::printable(input_.state.tensors[i].name),
                                                 base::printable(input_.state.sections[i])));
    }
    number_of_tensor_.push_back(*number);
  }
  layout_ = files_->without_content(planning::join_header_sizes(*files_, messages_.header_shares));
  layout_.stored.tensors.resize(files_->catalog().size());
  for (std::uint32_t file = 0; file < files_->files(); ++file) {
    files_->add_file(layout_, file, files_->header_of(file));
  }
  extents_ = std::make_unique<plan::ExtentMap>(assign_files(*files_, layout_, ranks_, options.files.block_bytes));
}

void SaveWorld::exchange_claims() {
  for_each_rank("planning claims", [&](int rank) {
    const Described described = describe(rank);
    messages_.claims.post(rank, planning::claim_boxes(described.boxes, described.tensor_of_shard, rank, ranks_));
  });
  const int homes = static_cast<int>(std::min<std::uint64_t>(index(ranks_), files_->catalog().size()));
  for_each_rank("settling claims", [&](int home) {
    if (home >= homes) return;
    messages_.provisions.post(home, planning::settle_claims(files_->catalog(), messages_.claims.deliver(home), home));
  });
}

std::vector<plan::Runs> SaveWorld::transfers_of(int rank) const {
  const Described described = describe(rank);
  const auto pieces = planning::collect_pieces(messages_.provisions.deliver(rank), rank);
  return plan::transfers_of_memory(pieces, described.boxes, layout_.stored, *extents_);
}

void SaveWorld::check_sums() const {
  std::uint64_t provided = 0;
  std::uint64_t written = 0;
  for (const RankTraffic& traffic : traffic_) {
    provided += traffic.local_bytes + traffic.away_bytes;
    written += traffic.extent_bytes;
  }
  if (provided == input_.state.bytes && written == extents_->total_bytes()) return;
  throw base::internal_error(fmt::format("the plan moves {} of {} bytes and writes {} of {}", provided,
                                         input_.state.bytes, written, extents_->total_bytes()));
}

std::span<const TrafficFigure> SaveWorld::traffic_figures() const {
  static constexpr auto kFigures = std::to_array<TrafficFigure>({
      {"held_bytes", true, [](const RankTraffic& t) { return t.memory_bytes; }},
      {"provided_bytes", true, [](const RankTraffic& t) { return t.away_bytes + t.local_bytes; }},
      {"sent_bytes", true, [](const RankTraffic& t) { return t.away_bytes; }},
      {"received_bytes", true, [](const RankTraffic& t) { return t.served_bytes; }},
      {"local_bytes", true, [](const RankTraffic& t) { return t.local_bytes; }},
      {"written_bytes", true, [](const RankTraffic& t) { return t.extent_bytes; }},
      {"extents", false, [](const RankTraffic& t) { return t.extents; }},
      {"transfers_out", false, [](const RankTraffic& t) { return t.transfers; }},
      {"transfers_in", false, [](const RankTraffic& t) { return t.arriving; }},
      {"peers", false, [](const RankTraffic& t) { return t.peers; }},
  });
  return kFigures;
}

std::vector<MetadataVolume> SaveWorld::metadata() const {
  return {{"descriptions", messages_.descriptions.volumes()},
          {"samples", volumes_of_gathered(messages_.samples)},
          {"sorting", messages_.spread.volumes()},
          {"catalog", volumes_of_gathered(messages_.stretches)},
          {"header_sizes", volumes_of_gathered(messages_.header_shares)},
          {"indexes", volumes_to_root(messages_.index_shares)},
          {"claims", messages_.claims.volumes()},
          {"provisions", messages_.provisions.volumes()},
          {"transfers", records().volumes()}};
}

std::vector<int> SaveWorld::busiest_ranks() const {
  std::vector<int> busiest;
  for (const MessageLog* log : {&messages_.descriptions, &messages_.spread, &messages_.claims, &messages_.provisions}) {
    busiest.push_back(most_received(log->volumes()));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!messages_.index_shares[index(rank)].empty()) busiest.push_back(rank);
  }
  return busiest;
}

RankCost SaveWorld::replay(int rank) const { return SaveReplay(*this, rank).run(); }

}  // namespace cairn::simulate
