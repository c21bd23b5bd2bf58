// Every rank plans a load; then one rank runs the steps of Checkpointer::load up to the first round, with the messages
// of the other ranks.
#include "simulate/plan_load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "checkpoint/read_plan.hpp"
#include "checkpoint/targets.hpp"
#include "checkpoint/window_io.hpp"
#include "codes/view.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "plan/catalog.hpp"
#include "plan/stored_tensors.hpp"
#include "plan/transfers.hpp"
#include "planning/describe.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::simulate {
namespace {

/// Path of a checkpoint that does not exist, for error messages.
constexpr const char* kDirectory = "checkpoint";

/// Makes the manifest and the block table of files without content.
void encode_texts(const plan::FileLayout& layout, std::uint64_t block_bytes, LoadWorld::Stored& out) {
  format::BlockTable table{block_bytes, {}};
  format::Manifest manifest;
  manifest.tool = "cairn plan";
  manifest.block_bytes = block_bytes;
  for (const plan::DataFile& file : layout.files) {
    table.files.push_back({file.name, file.size_bytes, {}});
    table.files.back().crcs.resize(base::ceil_div(file.size_bytes, block_bytes));
    manifest.data_files.push_back(
        {file.name, file.section, file.size_bytes, format::file_digest(table.files.back(), block_bytes)});
  }
  out.blocks = format::encode_blocks(table);
  manifest.blocks_crc32c = format::crc32c(out.blocks);
  out.manifest = format::encode_manifest(manifest);
}

base::Bytes merge(const comm::Messages& runs) {
  std::optional<base::Bytes> merged = plan::merge_runs(runs);
  if (!merged) throw base::internal_error("a planned checkpoint has a tensor twice");
  return std::move(*merged);
}

/// "shards" is the cost of the layout (ShardMap::held_by and a Target per tensor); a trainer that describes its shards
/// itself does not have this cost.
constexpr std::array<std::string_view, 9> kSteps = {"shards", "listing", "headers",   "catalog", "tensors",
                                                    "blocks", "extents", "transfers", "exchange"};

class LoadReplay final : public Replay {
 public:
  LoadReplay(const LoadWorld& world, int rank) : Replay(world, rank, kSteps), world_(world) {}

  RankCost run() {
    measure("shards", [&] {
      held_ = world_.input().map.held_by(rank());
      targets_ = shards_of<Target>(world_.input(), held_);
    });
    open();
    find_tensors();
    find_blocks();
    assign_extents();
    measure("transfers", [&] {
      transfers_ = std::move(checkpoint::transfers_of_rank(rank(), checkpoint_, wanted_, plan_).of_windows.front());
      step_messages_ = records_of(transfers_, world_.ranks());
    });
    plan_exchange(std::move(transfers_), plan_.extents.front());
    held_.clear();
    targets_ = {};
    return finish();
  }

 private:
  void open() {
    const LoadWorld::Messages& messages = world_.messages();
    const bool is_root = rank() == 0;
    base::Bytes message;
    if (is_root) measure("listing", [&] { message = world_.announce(on_root_); });
    message = messages.announced;
    base::Bytes blocks = messages.blocks;
    measure("listing", [&] { listing_ = opening::take_announced(message, std::move(blocks)); });
    opening::HeaderShare share{rank(), world_.ranks(), {}, {}, {}};
    measure("headers", [&] { message = opening::read_share(listing_, world_.files_to_read(), share); });
    if (is_root) {
      step_messages_ = messages.summaries;
      measure("headers", [&] {
        message = LoadWorld::judge(on_root_, step_messages_);
        on_root_ = {};
      });
    }
    message = messages.judged;
    measure("headers", [&] {
      share.texts.clear();
      opening::take_judged(message, listing_);
      message = opening::place(listing_, share);
    });
    step_messages_ = messages.samples;
    measure("catalog", [&] { step_messages_ = opening::spread(share, step_messages_); });
    step_messages_ = messages.spread.deliver(rank());
    measure("catalog", [&] { message = merge(step_messages_); });
    step_messages_ = messages.stretches;
    measure("catalog", [&] {
      checkpoint_ = std::move(listing_.opened);
      checkpoint_.stored.tensors = plan::StoredTensors(plan::PackedCatalog(step_messages_));
      listing_ = {};
      step_messages_ = {};
    });
  }

  void find_tensors() {
    measure("tensors", [&] {
      view_ = codes::loading_view(checkpoint_, codes::view_options(world_.input().options));
      wanted_.boxes = [boxes = std::move(checkpoint::find_targets(checkpoint_, view_, targets_).boxes)](std::uint64_t) {
        return boxes;
      };
      wanted_.batches = 1;
    });
  }

  void find_blocks() {
    measure("blocks", [&] {
      grid_.emplace(checkpoint::file_sizes(checkpoint_.stored.files_alone()), checkpoint_.blocks->block_bytes());
      blocks_.emplace(checkpoint_, checkpoint_.blocks->block_bytes(), index(world_.ranks()));
      blocks_->add(wanted_.boxes(0));
    });
    std::vector<checkpoint::Ranges>& batches = blocks_->batches();
    const checkpoint::RangesOfRanks all(*grid_, world_.range_counts());
    if (all.is_dense(0)) {
      std::optional<plan::BlockSet> set;
      measure("blocks", [&] { set.emplace(all.blocks(batches.front())); });
      measure("blocks", [&] {
        // In a reduction that halves the data in each step, a rank combines about one word for each word of the set.
        set->add(world_.wanted());
        batches.front() = set->ranges();
      });
      return;
    }
    base::Bytes mine;
    measure("blocks", [&] { mine = all.pack(batches); });
    step_messages_ = world_.packed_ranges();
    measure("blocks", [&] {
      all.join(step_messages_, *blocks_, batches);
      step_messages_ = {};
    });
  }

  void assign_extents() {
    measure("extents", [&] {
      plan_.extents.push_back(assign_to_all(std::move(blocks_->batches().front()), checkpoint_.group_of_file,
                                            world_.ranks(), checkpoint_.blocks->block_bytes()));
      plan_.bypass.resize(1);
      blocks_.reset();
      grid_.reset();
    });
  }

  const LoadWorld& world_;
  std::vector<shard::HeldTensor> held_;
  std::vector<Target> targets_;
  opening::Listing on_root_;  ///< on rank 0, with the whole manifest
  opening::Listing listing_;
  opening::OpenCheckpoint checkpoint_;
  codes::View view_;
  checkpoint::Wanted wanted_;  ///< one batch
  std::optional<plan::BlockGrid> grid_;
  std::optional<checkpoint::WantedBlocks> blocks_;
  checkpoint::ReadPlan plan_;
  std::vector<plan::Runs> transfers_;
};

}  // namespace

LoadWorld::LoadWorld(const PlanInput& input)
    : PlanWorld(input), messages_{{}, {}, {}, {}, {}, MessageLog(input.map.layout().world_size()), {}} {
  lay_out();
  want(open());
  count_traffic();
  check_sums();
}

void LoadWorld::lay_out() {
  const Options& options = input_.options;
  std::vector<plan::CatalogTensor> tensors;
  for (std::size_t i = 0; i < input_.state.tensors.size(); ++i) {
    const Tensor& tensor = input_.state.tensors[i];
    tensors.push_back({input_.state.sections[i], tensor.name, tensor.dtype, tensor.shape});
  }
  files_ = std::make_unique<plan::HfLayout>(
      plan::PackedCatalog(plan::make_catalog(std::move(tensors))),
      plan::LayoutOptions{options.files.max_bytes, options.files.align_bytes, options.files.metadata});
  const comm::Messages sizes = {planning::header_sizes_of_share(*files_, 0, 1)};
  layout_ = files_->without_content(planning::join_header_sizes(*files_, sizes));
  for (std::uint32_t file = 0; file < files_->files(); ++file) {
    const plan::DataFile& data = layout_.files[file];
    stored_.headers[data.name] = {files_->header_of(file).bytes.substr(format::kPrefixBytes), data.size_bytes};
  }
  stored_.indexes = planning::join_indexes({planning::indexes_of_share(*files_, 0, 1)});
  encode_texts(layout_, options.files.block_bytes, stored_);
}

base::Bytes LoadWorld::announce(opening::Listing& on_root) const {
  on_root.opened.directory = kDirectory;
  on_root.found.path = kDirectory;
  opening::attach_texts(on_root.opened, stored_.manifest, stored_.blocks);
  interop::take_manifest(on_root.found, on_root.opened.manifest.value());
  for (const auto& [name, header] : stored_.headers) on_root.opened.stored.files.push_back({name, 0});
  for (const auto& [name, text] : stored_.indexes) on_root.indexes.push_back(name);
  return opening::announce(on_root);
}

base::Bytes LoadWorld::judge(opening::Listing& on_root, const comm::Messages& summaries) {
  const auto outline = opening::judge(on_root, summaries);
  if (!outline) throw base::internal_error("a planned checkpoint is not what a save writes");
  opening::check_files(on_root.opened, on_root.digests, opening::Links::kInside);
  return opening::encode_judged(on_root, *outline);
}

opening::ReadText LoadWorld::files_to_read() const {
  return [this](const opening::OpenCheckpoint&, const std::string& name) {
    const auto header = stored_.headers.find(name);
    return header != stored_.headers.end() ? header->second : opening::FileText{stored_.indexes.at(name)};
  };
}

opening::OpenCheckpoint LoadWorld::open() {
  opening::Listing on_root;
  messages_.announced = announce(on_root);
  messages_.blocks = on_root.opened.blocks.value().bytes();
  opening::Listing listing = opening::take_announced(messages_.announced, messages_.blocks);
  std::vector<opening::HeaderShare> shares;
  for_each_rank("planning the opening", [&](int rank) {
    shares.push_back({rank, ranks_, {}, {}, {}});
    messages_.summaries.push_back(opening::read_share(listing, files_to_read(), shares.back()));
    shares.back().texts.clear();
  });
  messages_.judged = judge(on_root, messages_.summaries);
  opening::take_judged(messages_.judged, listing);
  for (opening::HeaderShare& share : shares) messages_.samples.push_back(opening::place(listing, share));
  for (opening::HeaderShare& share : shares) {
    messages_.spread.post(share.rank, opening::spread(share, messages_.samples));
  }
  for (int rank = 0; rank < ranks_; ++rank) messages_.stretches.push_back(merge(messages_.spread.deliver(rank)));
  opening::OpenCheckpoint opened = std::move(listing.opened);
  opened.stored.tensors = plan::StoredTensors(plan::PackedCatalog(messages_.stretches));
  checkpoint_ = opened.stored.unpacked();
  const plan::NumbersByName numbers = plan::numbers_by_name(checkpoint_.tensors);
  for (std::size_t i = 0; i < input_.state.tensors.size(); ++i) {
    number_of_tensor_.push_back(numbers.at({input_.state.sections[i], input_.state.tensors[i].name}));
  }
  return opened;
}

void LoadWorld::want(const opening::OpenCheckpoint& opened) {
  const std::uint64_t block_bytes = input_.options.files.block_bytes;
  checkpoint::WantedBlocks of_ranks(opened, block_bytes, index(ranks_));  // each rank takes the place of a batch
  grid_ = std::make_unique<plan::BlockGrid>(checkpoint::file_sizes(checkpoint_), block_bytes);
  wanted_ = std::make_unique<plan::BlockSet>(*grid_);
  for_each_rank("planning shards", [&](int rank) {
    const std::vector<plan::MemoryBox> boxes = boxes_of(rank);
    for (const plan::MemoryBox& box : boxes) traffic_[index(rank)].memory_bytes += box.bytes.size();
    of_ranks.add(boxes);
  });
  range_counts_ = {0};
  for (const checkpoint::Ranges& ranges : of_ranks.batches()) {
    range_counts_.front() += ranges.size();
    for (const plan::FileRange& range : ranges) wanted_->insert(range);
  }
  const checkpoint::RangesOfRanks all(*grid_, range_counts_);
  for (checkpoint::Ranges& ranges : of_ranks.batches()) {
    std::vector<checkpoint::Ranges> batch;
    batch.push_back(std::move(ranges));
    packed_ranges_.push_back(all.pack(batch));
  }
  extents_ =
      std::make_unique<plan::ExtentMap>(assign_to_all(wanted_->ranges(), opened.group_of_file, ranks_, block_bytes));
}

std::vector<plan::MemoryBox> LoadWorld::boxes_of(int rank) const {
  const std::vector<shard::HeldTensor> held = input_.map.held_by(rank);
  const std::vector<Target> targets = shards_of<Target>(input_, held);
  std::vector<plan::MemoryBox> boxes;
  for (std::size_t i = 0; i < held.size(); ++i) {
    planning::add_boxes(targets[i], number_of_tensor_[held[i].tensor], boxes);
  }
  return boxes;
}

std::vector<plan::Runs> LoadWorld::transfers_of(int rank) const {
  const std::vector<plan::MemoryBox> boxes = boxes_of(rank);
  return plan::transfers_of_memory(plan::whole_pieces(rank, boxes), boxes, checkpoint_, *extents_);
}

void LoadWorld::check_sums() const {
  std::uint64_t wanted = 0;
  std::uint64_t arriving = 0;
  std::uint64_t read = 0;
  for (const RankTraffic& traffic : traffic_) {
    wanted += traffic.memory_bytes;
    arriving += traffic.local_bytes + traffic.away_bytes;
    read += traffic.extent_bytes;
  }
  if (arriving == wanted && read == extents_->total_bytes()) return;
  throw base::internal_error(fmt::format("the plan brings {} of {} bytes and reads {} of {}", arriving, wanted, read,
                                         extents_->total_bytes()));
}

std::span<const TrafficFigure> LoadWorld::traffic_figures() const {
  static constexpr auto kFigures = std::to_array<TrafficFigure>({
      {"wanted_bytes", true, [](const RankTraffic& t) { return t.memory_bytes; }},
      {"read_bytes", true, [](const RankTraffic& t) { return t.extent_bytes; }},
      {"sent_bytes", true, [](const RankTraffic& t) { return t.served_bytes; }},
      {"received_bytes", true, [](const RankTraffic& t) { return t.away_bytes; }},
      {"local_bytes", true, [](const RankTraffic& t) { return t.local_bytes; }},
      {"extents", false, [](const RankTraffic& t) { return t.extents; }},
      {"windows", false, [](const RankTraffic& t) { return t.windows; }},
      {"transfers_in", false, [](const RankTraffic& t) { return t.transfers; }},
      {"transfers_out", false, [](const RankTraffic& t) { return t.arriving; }},
      {"peers", false, [](const RankTraffic& t) { return t.peers; }},
  });
  return kFigures;
}

std::vector<MetadataVolume> LoadWorld::metadata() const {
  const auto to_all = [&](std::uint64_t bytes) {  // from rank 0
    std::vector<MessageVolume> volumes(traffic_.size(), {0, bytes});
    volumes.front() = {bytes, 0};
    return volumes;
  };
  std::uint64_t reduced = range_counts_.size() * sizeof range_counts_.front();
  if (checkpoint::RangesOfRanks(*grid_, range_counts_).is_dense(0)) reduced += wanted_->words().size_bytes();
  if (ranks_ == 1) reduced = 0;
  return {{"listing", to_all(messages_.announced.size() + messages_.judged.size())},
          {"checksums", to_all(messages_.blocks.size())},
          {"summaries", volumes_to_root(messages_.summaries)},
          {"samples", volumes_of_gathered(messages_.samples)},
          {"sorting", messages_.spread.volumes()},
          {"catalog", volumes_of_gathered(messages_.stretches)},
          {"blocks", std::vector<MessageVolume>(traffic_.size(), {reduced, reduced})},
          {"ranges", volumes_of_gathered(packed_ranges_)},
          {"transfers", records().volumes()}};
}

std::vector<int> LoadWorld::busiest_ranks() const {
  std::vector<int> busiest = {0, rank_with_most(ranks_, [&](int rank) { return traffic_[index(rank)].memory_bytes; }),
                              most_received(messages_.spread.volumes())};
  const int indexes = std::min(ranks_, static_cast<int>(stored_.indexes.size()));
  for (int i = 0; i < indexes; ++i) busiest.push_back(ranks_ - 1 - i);  // as opening::read_share assigns them
  return busiest;
}

RankCost LoadWorld::replay(int rank) const { return LoadReplay(*this, rank).run(); }

}  // namespace cairn::simulate
