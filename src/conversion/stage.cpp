#include "conversion/stage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "base/version.hpp"
#include "cairn/error.hpp"
#include "cairn/staging.hpp"
#include "checkpoint/check_options.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/replicas.hpp"
#include "checkpoint/targets.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "conversion/choice.hpp"
#include "conversion/stage_reader.hpp"
#include "conversion/stage_writer.hpp"
#include "conversion/window_filler.hpp"
#include "format/manifest.hpp"
#include "hdf5/library.hpp"
#include "interop/form.hpp"
#include "io/device_copies.hpp"
#include "io/exchange.hpp"
#include "opening/carried.hpp"
#include "os/access.hpp"
#include "plan/transfers.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/claim_steps.hpp"
#include "planning/describe.hpp"
#include "planning/save_limits.hpp"

namespace cairn::conversion {
namespace {

/// The source's manifest, without block table, file list and codes, which a staging file does not have.
format::Manifest manifest_of(const opening::OpenCheckpoint& source, const Options& options,
                             const std::map<std::string, std::string>& metadata) {
  format::Manifest manifest = source.manifest.value_or(format::Manifest{});
  manifest.tool = base::tool_version();
  manifest.data_files.clear();
  manifest.carried_files.clear();
  manifest.block_bytes = options.files.block_bytes;
  manifest.blocks_crc32c = 0;
  manifest.form.clear();
  manifest.quantisation = base::Json::object();
  manifest.extra = unknown_keys(source);
  if (!metadata.empty()) manifest.extra[opening::kStageMetadataKey] = metadata;
  return manifest;
}

hdf5::StageContent content_of(const format::Manifest& manifest) {
  hdf5::StageContent content;
  content.manifest = format::encode_manifest(manifest);
  content.tool = manifest.tool;
  content.run_id = manifest.run_id;
  content.layout = manifest.layout;
  if (manifest.has_step) content.step = manifest.step;
  return content;
}

/// Throws, before anything is written, if the destination cannot be a staging file.
void check_destination(const std::filesystem::path& file) {
  hdf5::require();
  if (opening::is_stage_name(file)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}': the name of a staging file ends in .h5 or .hdf5", base::printable(file.string())),
              {0, file.native()});
}

}  // namespace

ConvertReport convert_to_stage(comm::Communicator& communicator, const opening::OpenCheckpoint& source,
                               const std::filesystem::path& destination, const std::string& config,
                               const ConvertOptions& options, checkpoint::Call& call) {
  ConvertReport result;
  codes::View view;
  plan::TensorMap map;
  std::uint64_t overflows = 0;
  hdf5::StageContent content;
  comm::agree(communicator, "plan the staging file", [&] {
    check_destination(destination);
    planning::check_file_options(options.write.files);
    if (interop::form_called(options.to).traits().is_sharded) {
      throw Error(ErrorKind::kUsage, "a staging file holds whole tensors: shards cannot be written to .h5");
    }
    note_omissions(source, result.notes);
    view = view_for(source, "", destination, options, result.notes);
    const plan::Catalog sources = catalog_of(view);
    const std::vector<std::uint32_t> numbers = numbers_to_convert(source, view, sources, options, result.notes);
    map = plan::as_they_are(part_of(sources, numbers));
    use_all_sources(map, numbers);
    view = codes::mapped_view(std::move(view), map);
    view.overflows = &overflows;
    cast_as_asked(source, map.catalog, view, config, options, result.notes);
    std::map<std::string, std::string> metadata = source.metadata;
    drop_aliases({sources, numbers}, metadata, result.notes);
    content = content_of(manifest_of(source, options.write, metadata));
    note_disputed_metadata(source, result.notes);
    std::vector<std::string> left;
    const std::vector<std::string> carried = files_to_carry(source, left);
    result.notes.omit_all(left);
    planning::check_taken_names(map.catalog, carried);
    if (communicator.rank() == 0) content.carried = streams_of(source, carried);
  });
  const auto reader = make_reader(communicator, source, view, reading_half(options.read));
  StageWriter writer(communicator, destination, map.catalog, std::move(content), options.write, call);
  const CodedCatalog all = plain_catalog(map.catalog);
  WindowFiller filler(communicator, {writer.layout(), all, *reader, writer.windows(), batch_bytes(options.write)});
  try {
    writer.write([&](std::uint64_t, const io::WindowBuffer& window) { return filler.fill(window); });
  } catch (const comm::AgreedError&) {
    reader->close_after_error();
    throw;
  }
  note_overflows(communicator, overflows, options, result.notes);
  result.report = writer.report();
  return result;
}

namespace {

struct StagedState {
  std::span<const plan::Replica> replicas;
  std::span<const plan::MemoryBox> boxes;
  std::span<const Source> sources;
  const Options& options;
};

/// Collective: compares the replicas of the state, and returns a warning or an empty string.
std::string compare_staged(comm::Communicator& communicator, const StagedState& state, checkpoint::Call& call) {
  if (state.options.checks.replicas == ReplicaCheck::kOff) return {};
  if (communicator.max(state.replicas.empty() ? 0 : 1) == 0) return {};
  call.begin("replicas");
  std::vector<checkpoint::HeldReplica> held;
  std::unique_ptr<io::DeviceCopies> device;
  comm::agree(communicator, "find the replicas", [&] {
    if (std::ranges::any_of(state.boxes, plan::is_on_device)) {
      device = std::make_unique<io::DeviceCopies>(checkpoint::device_share(state.options.limits.memory_budget_bytes));
    }
    checkpoint::add_replicas(state.replicas, state.boxes, state.sources, held);
  });
  const plan::SampleRule rule = checkpoint::agree_on_sample(communicator, held);
  std::string warning = checkpoint::compare_replicas(communicator, {held, 0, state.options.checks, rule, device.get()});
  call.begin("plan");
  return warning;
}

}  // namespace

Report stage_state(comm::Communicator& communicator, const std::filesystem::path& file, std::span<const Source> state,
                   const Options& options, const std::map<std::string, std::string>& metadata) {
  checkpoint::Call call(communicator);
  call.begin("plan");
  std::vector<plan::MemoryBox> boxes;
  hdf5::StageContent content;
  comm::agree(communicator, "describe the state", [&] {
    check_destination(file);
    planning::check_file_options(options.files);
    if (checkpoint::part_of(options)) {
      throw Error(ErrorKind::kUsage,
                  "stage() writes all tensors that it is given: give those of the part, without Options::save_only and "
                  "no_save_optim");
    }
    planning::check_shards(state);
    planning::check_distinct(state);
    boxes = planning::memory_boxes(state);
    format::Manifest manifest = manifest_of({}, options, {});
    manifest.run_id = options.run_id;
    manifest.ranks = static_cast<std::uint64_t>(communicator.size());
    manifest.user_metadata = metadata;
    planning::check_manifest(manifest, {}, {}, "the metadata given to stage()");
    content = content_of(manifest);
  });
  const plan::PackedCatalog packed = planning::exchange_catalog(communicator, {state});
  plan::Catalog catalog;
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator, "number the tensors", [&] {
    catalog = packed.unpacked();
    tensor_of_shard = planning::number_tensors(packed, state);
  });
  const planning::SettledClaims settled = planning::exchange_claims(communicator, packed, boxes, tensor_of_shard);
  std::string warning = compare_staged(communicator, {settled.replicas, boxes, state, options}, call);
  StageWriter writer(communicator, file, catalog, std::move(content), options, call);
  std::vector<plan::Runs> transfers;
  checkpoint::MemorySplit budget = writer.budget();
  std::unique_ptr<io::DeviceCopies> device;
  comm::agree(communicator, "plan the exchange", [&] {
    transfers = plan::transfers_of_memory(settled.pieces, boxes, writer.layout().stored, writer.extents());
    if (std::none_of(boxes.begin(), boxes.end(), plan::is_on_device)) return;
    budget = budget.with_device_copies(checkpoint::device_share(options.limits.memory_budget_bytes));
    device = std::make_unique<io::DeviceCopies>(budget.device_bytes);
  });
  io::Exchange exchange(communicator, writer.layout().stored.files, writer.extents(), budget.window_bytes,
                        writer.pool(), std::move(transfers), {budget.exchange_bytes, device.get()});
  writer.write([&](std::uint64_t round, const io::WindowBuffer&) { return exchange.gather(round, boxes); });
  Report report = writer.report();
  comm::agree(communicator, "note a warning", [&] {
    if (!warning.empty()) report.warnings.push_back(std::move(warning));
  });
  return report;
}

}  // namespace cairn::conversion

namespace cairn {

// The public functions of cairn/staging.hpp.

Report stage(MPI_Comm given, const std::filesystem::path& file, std::span<const Source> state, const Options& options,
             const std::map<std::string, std::string>& metadata) {
  const auto communicator = checkpoint::watched_communicator(given, options);
  const checkpoint::ProgressScope progress(options.progress);
  Report report;
  checkpoint::run_call(*communicator, comm::CallName::kStage, "stage", [&] {
    comm::agree(*communicator, "look at the launcher", &comm::refuse_lonely_process);
    checkpoint::agree_on_options(*communicator, options, std::span(&file, 1));
    os::Access access;
    comm::agree(*communicator, "look for the group",
                [&] { access = os::access_of(options.files.mode, options.files.group); });
    const os::AccessScope scope(access);
    report = conversion::stage_state(*communicator, file, state, options, metadata);
  });
  return report;
}

namespace {

Report load_from_parts(MPI_Comm given, std::span<const std::filesystem::path> parts, Sight sight,
                       std::span<const Target> targets, const Options& options, const LoadOptions& load_options) {
  const checkpoint::PhaseClock whole;
  const auto communicator = checkpoint::watched_communicator(given, options);
  const checkpoint::ProgressScope progress(options.progress);
  opening::Parts where;
  Report report;
  checkpoint::run_call(*communicator, comm::CallName::kLoadFrom, "open", [&] {
    checkpoint::agree_on_options(*communicator, options, parts, sight);
    comm::agree(*communicator, "note the directories", [&] { where = {{parts.begin(), parts.end()}, sight}; });
    report = opening::with_open(
        *communicator, where, opening::allowed_by(options), [&](const opening::OpenCheckpoint& opened) {
          codes::View view = checkpoint::view_to_load(*communicator, opened, options, load_options);
          const auto reader = conversion::make_reader(*communicator, opened, view, checkpoint::read_options(options));
          return checkpoint::load_targets(*communicator, opened, {targets, load_options}, view, *reader, whole);
        });
    comm::agree(*communicator, "report", [&] { report.directory = parts.empty() ? "" : parts.front(); });
  });
  return report;
}

}  // namespace

Report load_from(MPI_Comm given, const std::vector<std::filesystem::path>& parts, std::span<const Target> targets,
                 const Options& options, const LoadOptions& load_options, Sight sight) {
  return load_from_parts(given, parts, sight, targets, options, load_options);
}

Report load_from(MPI_Comm given, const std::filesystem::path& path, std::span<const Target> targets,
                 const Options& options, const LoadOptions& load_options) {
  return load_from_parts(given, std::span(&path, 1), Sight::kAllRanks, targets, options, load_options);
}

}  // namespace cairn
