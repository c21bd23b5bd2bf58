#include "checkpoint/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/commit.hpp"
#include "checkpoint/data_writer.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/root.hpp"
#include "checkpoint/watched_call.hpp"
#include "checkpoint/window_io.hpp"
#include "checkpoint/window_regions.hpp"
#include "comm/agree.hpp"
#include "format/safetensors.hpp"
#include "os/file.hpp"
#include "shard/box_math.hpp"
#include "shard/shard_map.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxCarriedBytes = 1ULL << 30;

plan::Catalog catalog_of(const format::StoredCheckpoint& stored) {
  std::vector<plan::CatalogTensor> tensors;
  for (const auto& tensor : stored.tensors)
    tensors.push_back({tensor.section, tensor.name, tensor.dtype, tensor.shape});
  return plan::make_catalog(std::move(tensors));
}

shard::Model model_of(const OpenCheckpoint& source, std::vector<std::string>& notes) {
  const fs::path config = source.directory / "config.json";
  if (os::exists(config)) return shard::model_from_config(os::read_text(config, kMaxCarriedBytes));
  notes.push_back("no config.json beside the checkpoint: the model family is unknown");
  return {};
}

/// What every rank of the layout holds. Adjacent notes are for the user.
std::vector<std::vector<plan::HeldBox>> held_by_rank(const plan::Catalog& catalog, const shard::Layout& layout,
                                                     shard::Model model, std::vector<std::string>& notes) {
  std::vector<std::string> sections;
  std::vector<shard::TensorSpec> specs;
  for (const auto& tensor : catalog.tensors) {
    sections.push_back(tensor.section);
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const shard::ShardMap map(layout, std::move(model), std::move(sections), std::move(specs));
  notes.insert(notes.end(), map.notes().begin(), map.notes().end());
  std::vector<std::vector<plan::HeldBox>> held(static_cast<std::size_t>(layout.world_size()));
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    for (const auto& tensor : map.held_by(rank)) {
      for (const Box& box : tensor.boxes) held[static_cast<std::size_t>(rank)].push_back({tensor.tensor, box});
    }
  }
  return held;
}

/// Source tensor number of each destination tensor.
std::vector<std::uint32_t> source_numbers(const plan::FileLayout& layout, const format::StoredCheckpoint& source) {
  std::map<std::pair<std::string, std::string>, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < source.tensors.size(); ++i) {
    numbers[{source.tensors[i].section, source.tensors[i].name}] = i;
  }
  std::vector<std::uint32_t> result;
  for (const auto& tensor : layout.stored.tensors) result.push_back(numbers.at({tensor.section, tensor.name}));
  return result;
}

/// Collective: loads what a window holds. Regions of cut sub-byte groups go through memory of their own.
class WindowFiller {
 public:
  WindowFiller(const plan::FileLayout& layout, const OpenCheckpoint& source, Loader& loader)
      : index_(layout), numbers_(source_numbers(layout, source.stored)), source_(source), loader_(loader) {}

  std::uint64_t fill(const io::WindowBuffer& window) {
    std::vector<WindowRegion> regions = index_.regions(window);
    std::vector<std::unique_ptr<std::vector<std::byte>>> scratch(regions.size());
    std::vector<WantedBox> wanted;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      std::span<std::byte> memory = regions[i].memory;
      if (regions[i].loaded_bytes != memory.size()) {
        scratch[i] = std::make_unique<std::vector<std::byte>>(regions[i].loaded_bytes);
        memory = *scratch[i];
      }
      append(wanted, regions[i], memory);
      bytes += regions[i].memory.size();
    }
    loader_.load(wanted);
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (!scratch[i]) continue;
      std::memcpy(regions[i].memory.data(), scratch[i]->data() + regions[i].skip_bytes, regions[i].memory.size());
    }
    return bytes;
  }

 private:
  void append(std::vector<WantedBox>& wanted, const WindowRegion& region, std::span<std::byte> memory) const {
    const std::uint32_t tensor = numbers_[region.tensor];
    const DType dtype = source_.stored.tensors[tensor].dtype;
    std::uint64_t at = 0;
    for (const Box& box : region.boxes) {
      const std::uint64_t bytes = shard::elements_of(box) * bits_of(dtype) / 8;
      wanted.push_back({tensor, box, memory.subspan(at, bytes)});
      at += bytes;
    }
  }

  WindowIndex index_;
  std::vector<std::uint32_t> numbers_;
  const OpenCheckpoint& source_;
  Loader& loader_;
};

/// The largest number of windows of any worker, known to all without a message.
std::uint64_t round_count(const plan::ExtentMap& extents, std::uint64_t window_bytes) {
  std::uint64_t rounds = 0;
  for (int rank = 0; rank < extents.ranks(); ++rank) {
    const auto windows = plan::cut_windows(extents.of(rank), window_bytes, extents.grain_bytes());
    rounds = std::max<std::uint64_t>(rounds, windows.size());
  }
  return rounds;
}

CommitContent content_of(const OpenCheckpoint& source, const plan::FileLayout& layout, const ConvertOptions& options) {
  CommitContent content = make_content(layout);
  if (source.manifest) {
    const format::Manifest& old = *source.manifest;
    content.manifest.has_step = old.has_step;
    content.manifest.step = old.step;
    content.manifest.run_id = old.run_id;
    content.manifest.user_metadata = old.user_metadata;
    content.manifest.quantisation = old.quantisation;
    content.manifest.layout = old.layout;
    content.manifest.ranks = old.ranks;
  }
  if (options.shards) content.manifest.layout = options.layout.value_or("");
  return content;
}

void read_carried(const OpenCheckpoint& source, const plan::FileLayout& layout, CommitContent& content) {
  for (const std::string& name : source.carried) {
    const std::string text = os::read_text(source.directory / name, kMaxCarriedBytes);
    const auto bytes = base::as_bytes(text);
    content.carried.emplace(name, base::Bytes(bytes.begin(), bytes.end()));
  }
  for (const auto& [name, text] : layout.index_files) {
    const auto bytes = base::as_bytes(text);
    content.carried.insert_or_assign(name, base::Bytes(bytes.begin(), bytes.end()));
  }
}

plan::FileLayout lay_out(const OpenCheckpoint& source, const ConvertOptions& options, std::vector<std::string>& notes) {
  const plan::Catalog catalog = catalog_of(source.stored);
  const plan::LayoutOptions how{options.write.max_file_bytes, options.write.align_bytes, options.write.file_metadata};
  if (!options.shards) return plan::lay_out_hf(catalog, how);
  if (!options.layout) throw Error(ErrorKind::kUsage, "converting to shards needs a layout");
  const auto layout = shard::Layout::from_text(*options.layout);
  return plan::lay_out_shards(catalog, held_by_rank(catalog, layout, model_of(source, notes), notes), how);
}

}  // namespace

ConvertReport convert(comm::Communicator& communicator, const fs::path& source_path, const fs::path& destination,
                      const ConvertOptions& options) {
  PhaseClock clock;
  const WatchedCall watched(communicator, clock);
  clock.begin("plan");
  const OpenCheckpoint source = open_checkpoint(communicator, source_path);
  ConvertReport result;
  result.notes = source.warnings;
  plan::FileLayout layout;
  MemorySplit budget;
  std::unique_ptr<plan::ExtentMap> extents;
  comm::agree(communicator, "lay out the files", [&] {
    layout = lay_out(source, options, result.notes);
    budget = split_budget(options.write.memory_budget_bytes, options.write.block_bytes);
  });
  const EngineWish wish{options.write.engine, options.write.aggregators_per_node};
  const EngineChoice choice = choose_engine(communicator, wish, destination);
  extents = std::make_unique<plan::ExtentMap>(deal_extents(communicator, plan::section_groups(layout.stored),
                                                           plan::whole_files(file_sizes(layout.stored)),
                                                           options.write.block_bytes, choice));
  const auto windows =
      plan::cut_windows(extents->of(communicator.rank()), budget.window_bytes, options.write.block_bytes);
  const io::WindowPool buffers(communicator, largest_buffer(windows));
  CommitContent content = content_of(source, layout, options);
  comm::agree_on_root(communicator, "read the files to carry along", 0, [&] { read_carried(source, layout, content); });

  ReadOptions read = options.read;
  read.memory_budget_bytes = std::max(options.read.memory_budget_bytes / 2, 4 * format::kDefaultBlockBytes);
  Loader loader(communicator, source, read);
  WindowFiller filler(layout, source, loader);
  const CommitTarget target{destination, options.write.overwrite, false};
  clock.begin("commit");
  begin_commit(communicator, target);
  try {
    const auto engine = io::make_engine(choice.name, communicator, {options.write.hints});
    const WriteJob job{layout, *extents, windows, buffers, round_count(*extents, budget.window_bytes)};
    content.blocks = write_data(
        communicator, *engine, partial_directory(destination), job,
        [&](std::uint64_t, io::WindowBuffer window) { return filler.fill(window); }, clock);
    clock.begin("commit");
    finish_commit(communicator, target, std::move(content));
  } catch (...) {
    if (communicator.rank() == 0) abandon(target);
    throw;
  }
  clock.stop();
  Report& report = result.report;
  report.directory = destination;
  report.engine = choice.name;
  report.engine_reason = choice.reason;
  report.tensors = layout.stored.tensors.size();
  report.files = layout.files.size();
  for (const auto& tensor : layout.stored.tensors) {
    report.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
  }
  report.phases = clock.reduce(communicator);
  double seconds[] = {clock.seconds()};
  communicator.all_reduce(seconds, comm::ReduceOp::kMax);
  report.seconds = seconds[0];
  return result;
}

}  // namespace cairn::checkpoint
