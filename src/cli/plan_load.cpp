// Every rank plans a load; then one rank runs the steps of Checkpointer::load up to the first round, with messages that
// lie ready.
#include "cli/plan_load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
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
#include "plan/transfers.hpp"
#include "planning/describe.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::cli {
namespace {

/// Of a checkpoint that lies nowhere, for messages.
constexpr const char* kDirectory = "checkpoint";

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/// Manifest and block table of files without content.
checkpoint::OpenedTexts texts_of(const plan::FileLayout& layout, std::uint64_t block_bytes) {
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
  checkpoint::OpenedTexts texts;
  texts.blocks = format::encode_blocks(table);
  manifest.blocks_crc32c = format::crc32c(texts.blocks);
  texts.manifest = format::encode_manifest(manifest);
  return texts;
}

/// What rank 0 makes of the directory: directory/open.cpp without the reading.
checkpoint::OpenCheckpoint open_stored(const LoadWorld::Stored& stored, const plan::FileLayout& layout) {
  checkpoint::OpenCheckpoint checkpoint;
  checkpoint.directory = kDirectory;
  checkpoint::attach_texts(checkpoint, stored.texts);
  interop::Directory directory = stored.directory;
  for (std::size_t f = 0; f < layout.files.size(); ++f) {
    const plan::DataFile& file = layout.files[f];
    directory.safetensors[file.name] = format::parse_header(stored.headers[f], file.size_bytes, file.name);
  }
  checkpoint::recognise_files(checkpoint, std::move(directory));
  return checkpoint;
}

}  // namespace

LoadWorld::LoadWorld(const PlanInput& input) : PlanWorld(input) {
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
  const comm::Messages sizes = {checkpoint::header_sizes_of_share(*files_, 0, 1)};
  layout_ = files_->without_content(checkpoint::join_header_sizes(*files_, sizes));
  for (std::uint32_t file = 0; file < files_->files(); ++file) {
    stored_.headers.push_back(files_->header_of(file).bytes.substr(format::kPrefixBytes));
  }
  stored_.directory.path = kDirectory;
  stored_.directory.json = checkpoint::join_indexes({checkpoint::indexes_of_share(*files_, 0, 1)});
  stored_.texts = texts_of(layout_, options.files.block_bytes);
}

checkpoint::OpenCheckpoint LoadWorld::open() {
  checkpoint::OpenCheckpoint opened = open_stored(stored_, layout_);
  opened_ = checkpoint::encode_open(opened);
  checkpoint_ = opened.stored.unpacked();
  groups_ = opened.group_of_file;
  const plan::NumbersByName numbers = plan::numbers_by_name(checkpoint_.tensors);
  for (std::size_t i = 0; i < input_.state.tensors.size(); ++i) {
    number_of_tensor_.push_back(numbers.at({input_.state.sections[i], input_.state.tensors[i].name}));
  }
  return opened;
}

void LoadWorld::want(const checkpoint::OpenCheckpoint& opened) {
  const std::uint64_t block_bytes = input_.options.files.block_bytes;
  checkpoint::WantedBlocks of_ranks(opened, block_bytes, index(ranks_));  // a rank in the place of a batch
  grid_ = std::make_unique<plan::BlockGrid>(checkpoint::file_sizes(checkpoint_), block_bytes);
  wanted_ = std::make_unique<plan::BlockSet>(*grid_);
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::vector<plan::MemoryBox> boxes = boxes_of(rank);
    for (const plan::MemoryBox& box : boxes) traffic_[index(rank)].memory_bytes += box.bytes.size();
    of_ranks.add(boxes);
  }
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
  extents_ = std::make_unique<plan::ExtentMap>(assign_to_all(wanted_->ranges(), groups_, ranks_, block_bytes));
}

std::vector<plan::MemoryBox> LoadWorld::boxes_of(int rank) const {
  const std::vector<shard::HeldTensor> held = input_.map.held_by(rank);
  const std::vector<Target> targets = shards_of<Target>(input_, held);
  std::vector<plan::MemoryBox> boxes;
  for (std::size_t i = 0; i < held.size(); ++i) {
    checkpoint::add_boxes(targets[i], number_of_tensor_[held[i].tensor], boxes);
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
  throw Error(ErrorKind::kInternal, fmt::format("the plan brings {} of {} bytes and reads {} of {}", arriving, wanted,
                                                read, extents_->total_bytes()));
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
  std::vector<MessageVolume> catalog(traffic_.size(), {0, opened_.size()});
  catalog.front() = {opened_.size(), 0};  // from rank 0 to all others
  std::uint64_t reduced = range_counts_.size() * sizeof range_counts_.front();
  if (checkpoint::RangesOfRanks(*grid_, range_counts_).is_dense(0)) reduced += wanted_->words().size_bytes();
  if (ranks_ == 1) reduced = 0;
  return {{"catalog", std::move(catalog)},
          {"blocks", std::vector<MessageVolume>(traffic_.size(), {reduced, reduced})},
          {"ranges", volumes_of_gathered(packed_ranges_)},
          {"transfers", records().volumes()}};
}

std::vector<int> LoadWorld::busiest_ranks() const {
  return {0, rank_with_most(ranks_, [&](int rank) { return traffic_[index(rank)].memory_bytes; })};
}

namespace {

/// "shards" is what the layout costs (ShardMap::held_by and a Target per tensor), which a trainer that describes its
/// shards itself does not have.
constexpr std::array<std::string_view, 8> kSteps = {"shards", "headers", "catalog",   "tensors",
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
    base::Bytes opened;
    if (rank() == 0) {
      measure("headers", [&] { opened = checkpoint::encode_open(open_stored(world_.stored(), world_.layout())); });
    }
    opened = world_.opened();
    measure("catalog", [&] {
      checkpoint_ = checkpoint::decode_open(opened);
      opened = {};
    });
  }

  void find_tensors() {
    measure("tensors", [&] {
      view_ = checkpoint::loading_view(checkpoint_, checkpoint::view_options(world_.input().options));
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
        // In a reduction that halves what is left in each step, a rank joins about as many words as there are.
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
  checkpoint::OpenCheckpoint checkpoint_;
  checkpoint::View view_;
  checkpoint::Wanted wanted_;  ///< one batch
  std::optional<plan::BlockGrid> grid_;
  std::optional<checkpoint::WantedBlocks> blocks_;
  checkpoint::ReadPlan plan_;
  std::vector<plan::Runs> transfers_;
};

}  // namespace

RankCost LoadWorld::replay(int rank) const { return LoadReplay(*this, rank).run(); }

}  // namespace cairn::cli
