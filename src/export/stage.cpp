#include "export/stage.hpp"
#include "codes/device_memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "base/version.hpp"
#include "cairn/error.hpp"
#include "checkpoint/decoding_reader.hpp"
#include "checkpoint/watched_call.hpp"
#include "comm/agree.hpp"
#include "directory/open_stage.hpp"
#include "export/convert_source.hpp"
#include "export/stage_writer.hpp"
#include "export/window_filler.hpp"
#include "format/manifest.hpp"
#include "hdf5/library.hpp"
#include "io/exchange.hpp"
#include "planning/catalog_exchange.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {
namespace {

/// A staging file has no block table and no list of files: the manifest of the source without them, and without codes.
format::Manifest manifest_of(const OpenCheckpoint& source, const Options& options) {
  format::Manifest manifest = source.manifest.value_or(format::Manifest{});
  manifest.version = format::kManifestVersion;
  manifest.tool = base::tool_version();
  manifest.data_files.clear();
  manifest.carried_files.clear();
  manifest.block_bytes = options.block_bytes;
  manifest.blocks_crc32c = 0;
  manifest.quantisation = base::Json::object();
  manifest.extra = unknown_keys(source);
  if (!source.metadata.empty()) manifest.extra[kStageMetadataKey] = source.metadata;
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

/// Throws what a staging file cannot be written for, before anything is.
void check_destination(const std::filesystem::path& file) {
  hdf5::require();
  if (is_stage_name(file)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}': the name of a staging file ends in .h5 or .hdf5", base::printable(file.string())));
}

}  // namespace

ConvertReport convert_to_stage(comm::Communicator& communicator, const OpenCheckpoint& source,
                               const std::filesystem::path& destination, const ConvertOptions& options,
                               PhaseClock& clock) {
  ConvertReport result;
  View view;
  plan::Catalog catalog;
  hdf5::StageContent content;
  comm::agree(communicator, "plan the staging file", [&] {
    check_destination(destination);
    if (options.shards) {
      throw Error(ErrorKind::kUsage, "a staging file holds whole tensors: shards cannot be written to .h5");
    }
    result.notes = source.warnings;
    view = view_for(source, destination, options, result.notes);
    catalog = catalog_of(view);
    content = content_of(manifest_of(source, options.write));
    note_disputed_metadata(source, result.notes);
    const std::vector<std::string> carried = files_to_carry(source, result.notes);
    if (communicator.rank() == 0) content.carried = streams_of(source, carried);
  });
  const auto reader = make_view_reader(communicator, source, view, reading_half(options.read));
  StageWriter writer(communicator, destination, catalog, std::move(content), options.write, clock);
  const CodedCatalog all = plain_catalog(catalog);
  WindowFiller filler(communicator, {writer.layout(), all, *reader, batch_bytes(options.write)});
  writer.write([&](std::uint64_t, io::WindowBuffer window) { return filler.fill(window); });
  result.report = writer.report();
  return result;
}

Report stage_state(comm::Communicator& communicator, const std::filesystem::path& file, std::span<const Source> state,
                   const Options& options, const std::map<std::string, std::string>& metadata) {
  PhaseClock clock;
  const WatchedCall watched(communicator, clock);
  clock.begin("plan");
  DeviceMemory device;
  std::vector<LocalBox> boxes;
  std::vector<std::span<const std::byte>> memory;
  hdf5::StageContent content;
  comm::agree(communicator, "describe the state", [&] {
    check_destination(file);
    check_shards(state);
    boxes = local_boxes(state);
    device.bring(boxes);
    for (const LocalBox& box : boxes) memory.emplace_back(box.data, box.bytes);
    format::Manifest manifest = manifest_of({}, options);
    manifest.run_id = options.run_id;
    manifest.ranks = static_cast<std::uint64_t>(communicator.size());
    manifest.user_metadata = metadata;
    content = content_of(manifest);
  });
  const plan::PackedCatalog packed = exchange_catalog(communicator, {state});
  plan::Catalog catalog;
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator, "number the tensors", [&] {
    catalog = packed.unpacked();
    tensor_of_shard = number_tensors(packed, state);
  });
  const auto parts = exchange_claims(communicator, packed, {boxes, tensor_of_shard});
  StageWriter writer(communicator, file, catalog, std::move(content), options, clock);
  std::vector<plan::Transfer> transfers;
  comm::agree(communicator, "plan the exchange", [&] {
    transfers = plan::transfers_of_memory(communicator.rank(), parts, writer.layout().stored, writer.extents());
  });
  io::Exchange exchange(communicator, writer.layout().stored, writer.extents(), writer.budget().window_bytes,
                        writer.pool(), std::move(transfers), {writer.budget().exchange_bytes});
  writer.write([&](std::uint64_t round, io::WindowBuffer) { return exchange.gather(round, memory); });
  return writer.report();
}

}  // namespace cairn::checkpoint
