#include "checkpoint/stage_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/box_pieces.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/root.hpp"
#include "comm/agree.hpp"
#include "format/hf_index.hpp"
#include "format/manifest.hpp"
#include "plan/runs.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxPieceBytes = 1ULL << 30;  // HDF5 1.10 loses what a call has beyond 2 GiB in places
constexpr std::uint64_t kMinPieceBytes = 64 << 10;

fs::path stage_path(const OpenCheckpoint& checkpoint) {
  return checkpoint.directory / checkpoint.stored.files.at(0).name;
}

/// Takes the metadata of data files out of the manifest, where unknown keys are kept.
std::map<std::string, std::string> take_metadata(format::Manifest& manifest, const std::string& where) {
  std::map<std::string, std::string> metadata;
  const base::Json object = manifest.extra.take(kStageMetadataKey);
  for (const auto& [key, value] : object.is_object() ? object.items() : std::span<const base::Json::Member>()) {
    if (!value.is_string()) {
      throw Error(ErrorKind::kFormat, fmt::format("{}: {}: '{}' must be a string, found {}", where, kStageMetadataKey,
                                                  base::printable(key), value.type_name()));
    }
    metadata[key] = value.text();
  }
  return metadata;
}

/// Names of carried files become names in a directory one day.
void check_carried_name(const std::string& name, const std::string& where) {
  format::check_relative_path(name, where);
  if (name.find('/') != std::string::npos || name == kManifestFile || name == kBlocksFile ||
      name.ends_with(".safetensors")) {
    throw Error(ErrorKind::kFormat,
                fmt::format("{}: '{}' cannot be a file that was carried along", where, base::printable(name)));
  }
}

}  // namespace

bool is_stage_name(const fs::path& path) { return path.extension() == ".h5" || path.extension() == ".hdf5"; }

bool is_stage(const OpenCheckpoint& checkpoint) { return checkpoint.dialect == interop::Dialect::kHdf5; }

OpenCheckpoint open_stage(const fs::path& path) {
  const std::string shown = base::printable(path.string());
  if (!hdf5::looks_like_hdf5(path)) {
    throw Error(ErrorKind::kFormat, fmt::format("'{}' does not begin as an HDF5 file does", shown));
  }
  hdf5::StageDescription description = hdf5::describe_stage(path);
  OpenCheckpoint checkpoint;
  checkpoint.directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  checkpoint.dialect = interop::Dialect::kHdf5;
  checkpoint.stored = std::move(description.stored);
  checkpoint.manifest = format::parse_manifest(description.manifest, path.string() + ":/cairn/manifest");
  checkpoint.metadata = take_metadata(*checkpoint.manifest, shown + ":/cairn/manifest");
  for (const auto& [name, bytes] : description.carried) {
    check_carried_name(name, shown);
    checkpoint.carried.push_back(name);
  }
  return checkpoint;
}

std::string read_carried_of_stage(const OpenCheckpoint& checkpoint, const std::string& name,
                                  std::uint64_t limit_bytes) {
  const fs::path path = stage_path(checkpoint);
  hdf5::StageFile file(path, checkpoint.stored.files.at(0).size_bytes);
  const std::uint64_t size = file.carried_bytes(name);
  if (size > limit_bytes) {
    throw Error(ErrorKind::kFormat,
                fmt::format("'{}': '{}' has {} bytes, but at most {} are expected", base::printable(path.string()),
                            base::printable(name), size, limit_bytes));
  }
  const base::Bytes bytes = file.read_carried(name);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

base::ByteStream carried_stream_of_stage(const OpenCheckpoint& checkpoint, const std::string& name) {
  const fs::path path = stage_path(checkpoint);
  const std::uint64_t file_bytes = checkpoint.stored.files.at(0).size_bytes;
  return {hdf5::StageFile(path, file_bytes).carried_bytes(name), [path, file_bytes, name](const base::PutBytes& put) {
            hdf5::StageFile(path, file_bytes).give_carried(name, put);
          }};
}

StageReader::StageReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options)
    : communicator_(communicator),
      checkpoint_(checkpoint),
      piece_bytes_(std::clamp(options.memory_budget_bytes / 2, kMinPieceBytes, kMaxPieceBytes)) {}

void StageReader::load(std::span<const WantedBox> wanted) {
  const Call call(communicator_, clock_);
  clock_.begin("read");
  comm::agree(communicator_, "read the staging file", [&] {
    std::uint64_t total = 0;
    for (const WantedBox& want : wanted) {
      const format::StoredTensor& tensor = checkpoint_.stored.tensors.at(want.tensor);
      check_wanted(want, {tensor.name, tensor.dtype, tensor.shape});
      total += want.memory.size();
    }
    if (total == 0) return;
    if (!file_) {
      file_ = std::make_unique<hdf5::StageFile>(stage_path(checkpoint_), checkpoint_.stored.files.at(0).size_bytes);
    }
    std::uint64_t done = 0;
    for (const WantedBox& want : wanted) {
      report_progress("reading", done, total);
      if (bits_of(checkpoint_.stored.tensors[want.tensor].dtype) < 8) {
        read_packed(want);
      } else {
        read(want);
      }
      done += want.memory.size();
    }
  });
  clock_.stop();
}

void StageReader::read(const WantedBox& want) {
  const format::StoredTensor& tensor = checkpoint_.stored.tensors[want.tensor];
  const std::uint64_t element_bytes = bits_of(tensor.dtype) / 8;
  std::uint64_t at = 0;
  for_each_piece(want.box, std::max<std::uint64_t>(piece_bytes_ / element_bytes, 1), [&](const Box& piece) {
    clock_.begin("read");  // a sign of life
    const std::uint64_t bytes = shard::elements_of(piece) * element_bytes;
    file_->read_box(tensor, piece, want.memory.subspan(at, bytes));
    clock_.add_bytes(bytes);
    at += bytes;
  });
}

/// Packed bytes are a row in the file: the runs of the box are what is read.
void StageReader::read_packed(const WantedBox& want) {
  const format::StoredTensor& tensor = checkpoint_.stored.tensors[want.tensor];
  const plan::RunSpace space{tensor.dtype, shard::whole(tensor.shape), 0, want.box, want.box};
  plan::for_each_run(space, 0, std::numeric_limits<std::uint64_t>::max(), [&](const plan::Run& run) {
    for (std::uint64_t done = 0; done < run.length_bytes;) {
      const std::uint64_t bytes = std::min(run.length_bytes - done, piece_bytes_);
      file_->read_packed(tensor, run.file_offset + done, want.memory.subspan(run.memory_offset + done, bytes));
      clock_.add_bytes(bytes);
      done += bytes;
    }
  });
}

}  // namespace cairn::checkpoint
