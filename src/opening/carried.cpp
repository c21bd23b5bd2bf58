#include "opening/carried.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/hf_index.hpp"
#include "format/manifest.hpp"
#include "hdf5/stage_file.hpp"
#include "interop/file_names.hpp"
#include "plan/extents.hpp"

namespace cairn::opening {

namespace fs = std::filesystem;

namespace {

/// Takes the metadata of data files out of the manifest's unknown keys.
std::map<std::string, std::string> take_metadata(format::Manifest& manifest, const std::string& where) {
  std::map<std::string, std::string> metadata;
  if (const auto stored = base::JsonReader(manifest.extra, where).find(kStageMetadataKey)) {
    for (const auto& [key, value] : stored->members()) metadata.emplace(key, value.text());
  }
  manifest.extra.take(kStageMetadataKey);
  return metadata;
}

/// A carried file of a staging file may later become a file in a directory, so its name is checked.
void check_carried_name(const std::string& name, const std::string& where) {
  format::check_relative_path(name, where);
  if (name.find('/') != std::string::npos || name == format::kManifestFile || name == format::kBlocksFile ||
      interop::is_data_name(name)) {
    throw Error(ErrorKind::kFormat,
                fmt::format("{}: '{}' cannot be a file that was carried along", where, base::printable(name)));
  }
}

}  // namespace

fs::path stage_path(const OpenCheckpoint& checkpoint) {
  return checkpoint.directory / checkpoint.stored.files.at(0).name;
}

bool is_stage_name(const fs::path& path) {
  const std::string name = base::lower(path.filename().string());
  return name.ends_with(".h5") || name.ends_with(".hdf5");
}

bool is_stage(const OpenCheckpoint& checkpoint) { return checkpoint.about.dialect == kStageDialect; }

OpenCheckpoint open_stage(const fs::path& path) {
  const std::string shown = base::printable(path.string());
  if (!hdf5::looks_like_hdf5(path)) {
    throw Error(ErrorKind::kFormat, fmt::format("'{}' does not begin as an HDF5 file does", shown), {0, path.native()});
  }
  hdf5::StageDescription description = hdf5::describe_stage(path);
  OpenCheckpoint checkpoint;
  checkpoint.directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  checkpoint.about.dialect = kStageDialect;
  checkpoint.stored = plan::packed(description.stored);
  checkpoint.group_of_file = plan::section_groups(checkpoint.stored);
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
                            base::printable(name), size, limit_bytes),
                {0, path.native()});
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

namespace {

/// The file's checksum in the manifest; nothing if there is no manifest, or if the file was added later and not listed.
std::optional<std::uint32_t> checksum_of(const OpenCheckpoint& checkpoint, const std::string& name) {
  if (!checkpoint.manifest) return std::nullopt;
  const auto& listed = checkpoint.manifest->carried_files;
  const auto at = std::ranges::find(listed, name, &format::ManifestFile::name);
  if (at == listed.end()) return std::nullopt;
  return at->crc32c;
}

void check_checksum(const fs::path& path, std::uint32_t found, std::optional<std::uint32_t> expected) {
  if (!expected || found == *expected) return;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("'{}' {}: the file was damaged or changed since", base::printable(path.string()),
                          format::mismatch_words(found, *expected)),
              {0, path.native()});
}

Error changed(const fs::path& path, std::uint64_t before_bytes, std::uint64_t now_bytes) {
  return {ErrorKind::kIo,
          fmt::format("'{}' was changed while it was copied: it had {} bytes, and has {} now", os::shown(path),
                      before_bytes, now_bytes),
          {0, path.native()}};
}

void give_pieces(PiecewiseFile file, const base::PutBytes& put) {
  for (auto piece = file.next(); !piece.empty(); piece = file.next()) put(piece);
}

}  // namespace

std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes) {
  if (is_stage(checkpoint)) return read_carried_of_stage(checkpoint, name, limit_bytes);
  const fs::path path = checkpoint.path_of(name);
  std::string text = os::read_text(path, limit_bytes);
  check_checksum(path, format::crc32c(base::as_bytes(text)), checksum_of(checkpoint, name));
  return text;
}

base::ByteStream carried_stream(const OpenCheckpoint& checkpoint, const std::string& name) {
  if (is_stage(checkpoint)) return carried_stream_of_stage(checkpoint, name);
  const std::uint64_t size_bytes = os::file_size(checkpoint.path_of(name));
  return {size_bytes, [&checkpoint, name, size_bytes](const base::PutBytes& put) {
            PiecewiseFile file(checkpoint, name);
            if (file.size_bytes() != size_bytes) throw changed(checkpoint.path_of(name), size_bytes, file.size_bytes());
            give_pieces(std::move(file), put);
          }};
}

PiecewiseFile::PiecewiseFile(const fs::path& path)
    : file_(path, os::OpenMode::kRead), size_bytes_(file_.size_bytes()) {}

PiecewiseFile::PiecewiseFile(const OpenCheckpoint& checkpoint, const std::string& name)
    : PiecewiseFile(checkpoint.path_of(name)) {
  is_of_checkpoint_ = true;
  expected_ = checksum_of(checkpoint, name);
}

std::span<std::byte> PiecewiseFile::next() {
  if (at_ == size_bytes_ && !expected_) look_behind_the_end();
  piece_.resize(std::min(kPieceBytes, size_bytes_ - at_));
  if (piece_.empty()) {
    check_checksum(file_.path(), crc_.value(), expected_);
    return {};
  }
  file_.read_at(piece_, at_);
  at_ += piece_.size();
  crc_.add(piece_);
  return piece_;
}

void PiecewiseFile::check_size() const {
  if (!has_byte_at(size_bytes_) || file_.size_bytes() > size_bytes_) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("'{}' cannot be carried along: the system says that it has {}, and there are more, as in files "
                  "of /proc; carry a copy of it, or its text (Extras::carry_texts)",
                  os::shown(file_.path()), base::counted(size_bytes_, "byte")),
      {0, file_.path().native()});
}

bool PiecewiseFile::has_byte_at(std::uint64_t offset) const {
  std::array<std::byte, 1> byte{};
  try {
    file_.read_at(byte, offset);
    return true;
  } catch (const Error& error) {
    if (error.system_error() != 0) throw;
    return false;  // the file ends there
  }
}

/// Looks for bytes after the reported size: the file may have grown, or the system may report a wrong size.
void PiecewiseFile::look_behind_the_end() {
  if (!has_byte_at(size_bytes_)) return;
  const std::uint64_t now_bytes = file_.size_bytes();
  if (is_of_checkpoint_) throw changed(file_.path(), size_bytes_, std::max(now_bytes, size_bytes_ + 1));
  check_size();
  size_bytes_ = std::max(now_bytes, size_bytes_);
}

base::ByteStream file_stream(const fs::path& path) {
  const PiecewiseFile file(path);
  file.check_size();
  return {file.size_bytes(), [path](const base::PutBytes& put) { give_pieces(PiecewiseFile(path), put); }};
}

}  // namespace cairn::opening
