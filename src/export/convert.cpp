#include "export/convert.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/data_writer.hpp"
#include "checkpoint/decoding_reader.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/reports.hpp"
#include "checkpoint/watched_call.hpp"
#include "checkpoint/window_io.hpp"
#include "codes/coding_report.hpp"
#include "codes/left_out.hpp"
#include "comm/agree.hpp"
#include "directory/carried.hpp"
#include "directory/commit.hpp"
#include "directory/open_stage.hpp"
#include "directory/root.hpp"
#include "export/coded_catalog.hpp"
#include "export/convert_source.hpp"
#include "export/stage.hpp"
#include "export/window_filler.hpp"
#include "format/rebuilt.hpp"
#include "format/safetensors.hpp"
#include "os/file.hpp"
#include "shard/shard_map.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 256ULL << 20;

shard::Model model_of(const OpenCheckpoint& source, std::vector<std::string>& notes) {
  const auto& carried = source.carried;
  const bool has_config = is_stage(source) ? std::find(carried.begin(), carried.end(), "config.json") != carried.end()
                                           : os::exists(source.directory / "config.json");
  if (has_config) return shard::model_from_config(read_carried(source, "config.json", kMaxConfigBytes));
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

/// What is written, and from what.
struct Conversion {
  View view;             ///< of the source
  CodedCatalog catalog;  ///< made of the view's tensors
  base::Json rebuilt;
  plan::FileLayout layout;
};

CommitContent content_of(const OpenCheckpoint& source, const Conversion& conversion, const ConvertOptions& options) {
  CommitContent content = make_content(conversion.layout);
  if (source.manifest) {
    const format::Manifest& old = *source.manifest;
    content.manifest.has_step = old.has_step;
    content.manifest.step = old.step;
    content.manifest.kind = old.kind;
    content.manifest.base = old.base;
    content.manifest.run_id = old.run_id;
    content.manifest.user_metadata = old.user_metadata;
    content.manifest.layout = old.layout;
    content.manifest.ranks = old.ranks;
  }
  if (options.shards) content.manifest.layout = options.layout.value_or("");
  describe_codes(source, conversion.view, content.manifest);
  for (const PairToCode& pair : conversion.catalog.pairs) {
    content.manifest.quantisation[pair.tensor.section] = options.quant;
  }
  if (!conversion.rebuilt.empty()) content.manifest.extra[format::kRebuiltKey].update(conversion.rebuilt);
  return content;
}

/// Rank 0's files to carry along; indexes of the layout are among them.
void add_carried(const OpenCheckpoint& source, const std::vector<std::string>& files, const plan::FileLayout& layout,
                 CommitContent& content) {
  content.carried = streams_of(source, files);
  for (const auto& [name, text] : layout.index_files) {
    const auto bytes = base::as_bytes(text);
    content.carried.insert_or_assign(name, base::Bytes(bytes.begin(), bytes.end()));
  }
}

bool is_codec(const std::string& quant) { return quant != "keep" && quant != "off"; }

/// `rebuilt` is for the manifest.
CodedCatalog coded_catalog_of(const View& view, const ConvertOptions& options, base::Json& rebuilt) {
  const plan::Catalog catalog = catalog_of(view);
  const Kept kept = leave_out(catalog, options.write.quantisation);
  rebuilt = kept.rebuilt;
  plan::Catalog left;
  for (const std::uint32_t number : kept.numbers) left.tensors.push_back(catalog.tensors[number]);
  std::map<std::string, const quant::Codec*> codecs;
  if (is_codec(options.quant)) codecs["optimizer"] = &quant::find_codec(options.quant);
  CodedCatalog content = code_catalog(left, codecs);
  for (TensorOrigin& origin : content.origins) origin.source = origin.pair ? 0 : kept.numbers[origin.source];
  for (PairToCode& pair : content.pairs) {
    pair.first = kept.numbers[pair.first];
    pair.second = kept.numbers[pair.second];
  }
  return content;
}

plan::FileLayout lay_out(const OpenCheckpoint& source, const plan::Catalog& catalog, const ConvertOptions& options,
                         std::vector<std::string>& notes) {
  note_disputed_metadata(source, notes);
  std::map<std::string, std::string> metadata = source.metadata;
  metadata.insert(options.write.file_metadata.begin(), options.write.file_metadata.end());
  const plan::LayoutOptions how{options.write.max_file_bytes, options.write.align_bytes, std::move(metadata)};
  if (!options.shards) return plan::lay_out_hf(catalog, how);
  if (!options.layout) throw Error(ErrorKind::kUsage, "converting to shards needs a layout");
  const auto layout = shard::Layout::from_text(*options.layout);
  return plan::lay_out_shards(catalog, held_by_rank(catalog, layout, model_of(source, notes), notes), how);
}

Conversion plan_conversion(const OpenCheckpoint& source, const fs::path& destination, const ConvertOptions& options,
                           std::vector<std::string>& notes) {
  Conversion conversion;
  conversion.view = view_for(source, destination, options, notes);
  conversion.catalog = coded_catalog_of(conversion.view, options, conversion.rebuilt);
  if (is_codec(options.quant) && conversion.catalog.pairs.empty()) {
    notes.push_back(fmt::format("nothing is coded in {}: section optimizer has no pair of Adam moments by their names",
                                options.quant));
  }
  conversion.layout = lay_out(source, conversion.catalog.catalog, options, notes);
  return conversion;
}

}  // namespace

ConvertReport convert(comm::Communicator& communicator, const fs::path& source_path, const fs::path& given,
                      const ConvertOptions& options) {
  const fs::path destination = given.has_filename() ? given : given.parent_path();  // "a/b/" is "a/b"
  PhaseClock clock;
  const WatchedCall watched(communicator, clock);
  clock.begin("plan");
  const OpenCheckpoint source = open_checkpoint(communicator, source_path, options.read.links);
  if (is_stage_name(destination)) return convert_to_stage(communicator, source, destination, options, clock);
  ConvertReport result;
  Conversion conversion;
  MemorySplit budget;
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  comm::agree(communicator, "lay out the files", [&] {
    result.notes = source.warnings;
    conversion = plan_conversion(source, destination, options, result.notes);
    budget = split_budget(options.write.memory_budget_bytes, options.write.block_bytes);
    groups = plan::section_groups(conversion.layout.stored);
    ranges = plan::whole_files(file_sizes(conversion.layout.stored));
  });
  const CodedCatalog& catalog = conversion.catalog;
  const plan::FileLayout& layout = conversion.layout;
  const EngineWish wish{options.write.engine, options.write.aggregators_per_node};
  const EngineChoice choice = choose_engine(communicator, wish, destination);
  const plan::ExtentMap extents = deal_extents(communicator, std::move(groups), std::move(ranges),
                                               options.write.block_bytes, choice, Access::kWrite);
  budget = budget.fitted_to(extents);
  std::vector<plan::Window> windows;
  CommitContent content;
  comm::agree(communicator, "lay out the files", [&] {
    windows = plan::cut_windows(extents.of(communicator.rank()), budget.window_bytes, options.write.block_bytes);
    content = content_of(source, conversion, options);
    const std::vector<std::string> carried = files_to_carry(source, result.notes);
    if (communicator.rank() == 0) add_carried(source, carried, layout, content);
  });
  const io::WindowPool buffers(communicator, largest_buffer(windows));

  const auto reader = make_view_reader(communicator, source, conversion.view, reading_half(options.read));
  const Quantisation& quantisation = options.write.quantisation;
  WindowFiller filler(communicator, {layout, catalog, *reader, batch_bytes(options.write), measuring_of(quantisation)});
  CommitTarget target;
  io::EngineOptions engine_options;
  comm::agree(communicator, "describe the checkpoint", [&] {
    result.report = report_of(layout.stored, choice);
    result.report.directory = destination;
    target = {destination, options.write.overwrite, false, options.write.read_back, nullptr, {}};
    engine_options.hints = options.write.hints;
  });
  clock.begin("commit");
  Commit commit = begin_commit(communicator, std::move(target));
  std::unique_ptr<io::Engine> engine;
  try {
    engine = io::make_engine_on_all(choice.name, communicator, std::move(engine_options));
    const WriteJob job{layout, extents, windows, buffers, communicator.max(windows.size())};
    content.blocks = write_data(
        communicator, *engine, commit.partial, job,
        [&](std::uint64_t, io::WindowBuffer window) { return filler.fill(window); }, clock);
    std::string warning =
        read_back_data(communicator, commit.partial, content.blocks,
                       {options.write.read_back, content.manifest.step, buffers.idle_memory()}, clock);
    comm::agree(communicator, "report", [&] {
      result.report.engine_hints = engine->hints();
      if (!warning.empty()) result.report.warnings.push_back(std::move(warning));
    });
    if (!catalog.pairs.empty()) {
      add_coding_report(collect_errors(
                            communicator, [&](std::uint32_t pair) { return catalog.pairs[pair].tensor; },
                            filler.errors(), quantisation),
                        result.report);
    }
    clock.begin("commit");
    finish_commit(communicator, commit, std::move(content));
  } catch (const comm::AgreedError&) {
    io::close_after_error(engine.get());
    if (communicator.rank() == 0) abandon(commit);
    throw;
  } catch (...) {
    if (communicator.rank() == 0) abandon(commit);
    throw;
  }
  clock.stop();
  add_times(communicator, clock, clock, result.report);
  return result;
}

}  // namespace cairn::checkpoint
