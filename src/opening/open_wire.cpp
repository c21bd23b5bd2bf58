#include "opening/open_parts.hpp"

#include <fmt/core.h>

#include "format/crc32c.hpp"
#include "os/file.hpp"
#include "root/root.hpp"

namespace cairn::opening {

void put_strings(base::ByteWriter& out, const std::vector<std::string>& values) {
  out.u64(values.size());
  for (const std::string& value : values) out.text(value);
}

std::vector<std::string> get_strings(base::ByteReader& in) {
  std::vector<std::string> values;
  for (std::uint64_t left = in.u64(); left > 0; --left) values.push_back(in.text());
  return values;
}

void put_map(base::ByteWriter& out, const std::map<std::string, std::string>& map) {
  out.u64(map.size());
  for (const auto& [key, value] : map) {
    out.text(key);
    out.text(value);
  }
}

std::map<std::string, std::string> get_map(base::ByteReader& in) {
  std::map<std::string, std::string> map;
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    std::string key = in.text();
    map[std::move(key)] = in.text();
  }
  return map;
}

void put_part_of(base::ByteWriter& out, const OpenCheckpoint& checkpoint) {
  out.u64(checkpoint.part_of.size());
  for (const auto& [file, part] : checkpoint.part_of) {
    out.text(file);
    out.text(part.string());
  }
}

void get_part_of(base::ByteReader& in, OpenCheckpoint& checkpoint) {
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    std::string file = in.text();
    checkpoint.part_of.emplace(std::move(file), in.text());
  }
}

void put_about(base::ByteWriter& out, const interop::About& about) {
  for (const std::string& text : {about.dialect, about.version, about.parallel, about.quantisation}) out.text(text);
  out.u64(about.step ? 1 : 0);
  out.u64(about.step.value_or(0));
  put_map(out, about.values);
  put_strings(out, about.sources);
  put_strings(out, about.left);
}

interop::About get_about(base::ByteReader& in) {
  interop::About about;
  for (std::string* text : {&about.dialect, &about.version, &about.parallel, &about.quantisation}) *text = in.text();
  const bool has_step = in.u64() != 0;
  const std::uint64_t step = in.u64();
  if (has_step) about.step = step;
  about.values = get_map(in);
  about.sources = get_strings(in);
  about.left = get_strings(in);
  return about;
}

void put_manifest(base::ByteWriter& out, const OpenCheckpoint& checkpoint) {
  out.u64(checkpoint.manifest ? 1 : 0);
  if (!checkpoint.manifest) return;
  format::Manifest manifest = *checkpoint.manifest;
  manifest.data_files.clear();
  out.u64(checkpoint.manifest_crc32c);
  out.u64(static_cast<std::uint64_t>(manifest.version));  // the text has this build's
  out.text(format::encode_manifest(manifest));
}

void get_manifest(base::ByteReader& in, OpenCheckpoint& checkpoint) {
  if (in.u64() == 0) return;
  checkpoint.manifest_crc32c = static_cast<std::uint32_t>(in.u64());
  const auto version = static_cast<int>(in.u64());
  checkpoint.manifest = format::parse_manifest(in.text_view(), (checkpoint.directory / format::kManifestFile).string());
  checkpoint.manifest->version = version;
}

namespace {

void put_stored(base::ByteWriter& out, const plan::PackedCheckpoint& stored) {
  out.u64(stored.files.size());
  for (const auto& file : stored.files) {
    out.text(file.name);
    out.u64(file.size_bytes);
  }
  out.blob(stored.tensors.catalog().run());
}

plan::PackedCheckpoint get_stored(base::ByteReader& in) {
  plan::PackedCheckpoint stored;
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    std::string name = in.text();
    stored.files.push_back({std::move(name), in.u64()});
  }
  const base::Bytes run = in.blob();
  stored.tensors = plan::StoredTensors(plan::PackedCatalog({&run, 1}));
  return stored;
}

void put_quantised(base::ByteWriter& out, const std::vector<interop::QuantisedMoments>& quantised) {
  out.u64(quantised.size());
  for (const auto& moments : quantised) {
    for (const std::string& text : {moments.codec, moments.section, moments.first, moments.second}) out.text(text);
    out.u64s(moments.shape);
    put_strings(out, moments.parts);
    out.u64(moments.one_scale_a_box ? 1 : 0);
    out.u64(moments.boxes.size());
    for (const interop::ScaledBox& scaled : moments.boxes) {
      out.u64s(scaled.box.offset);
      out.u64s(scaled.box.shape);
      out.u64(scaled.scales);
    }
  }
}

std::vector<interop::QuantisedMoments> get_quantised(base::ByteReader& in) {
  std::vector<interop::QuantisedMoments> quantised;
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    interop::QuantisedMoments moments;
    for (std::string* text : {&moments.codec, &moments.section, &moments.first, &moments.second}) *text = in.text();
    moments.shape = in.u64s();
    moments.parts = get_strings(in);
    moments.one_scale_a_box = in.u64() != 0;
    for (std::uint64_t boxes = in.u64(); boxes > 0; --boxes) {
      interop::ScaledBox& scaled = moments.boxes.emplace_back();
      scaled.box.offset = in.u64s();
      scaled.box.shape = in.u64s();
      scaled.scales = in.u64();
    }
    quantised.push_back(std::move(moments));
  }
  return quantised;
}

}  // namespace

base::Bytes encode_open(const OpenCheckpoint& checkpoint) {
  base::ByteWriter out;
  out.text(checkpoint.directory.string());
  put_part_of(out, checkpoint);
  put_about(out, checkpoint.about);
  put_stored(out, checkpoint.stored);
  out.u64s(std::vector<std::uint64_t>(checkpoint.group_of_file.begin(), checkpoint.group_of_file.end()));
  put_quantised(out, checkpoint.quantised);
  put_map(out, checkpoint.metadata);
  put_strings(out, checkpoint.disputed_metadata);
  put_strings(out, checkpoint.carried);
  put_strings(out, checkpoint.warnings);
  put_manifest(out, checkpoint);
  out.blob(checkpoint.blocks ? checkpoint.blocks->bytes() : base::Bytes());
  return out.take();
}

OpenCheckpoint decode_open(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  OpenCheckpoint checkpoint;
  checkpoint.directory = in.text();
  get_part_of(in, checkpoint);
  checkpoint.about = get_about(in);
  checkpoint.stored = get_stored(in);
  for (const std::uint64_t group : in.u64s()) checkpoint.group_of_file.push_back(static_cast<std::uint32_t>(group));
  checkpoint.quantised = get_quantised(in);
  checkpoint.metadata = get_map(in);
  checkpoint.disputed_metadata = get_strings(in);
  checkpoint.carried = get_strings(in);
  checkpoint.warnings = get_strings(in);
  get_manifest(in, checkpoint);
  attach_blocks(checkpoint, in.blob());
  return checkpoint;
}

void attach_blocks(OpenCheckpoint& checkpoint, base::Bytes blocks) {
  if (blocks.empty()) return;
  checkpoint.blocks.emplace(std::move(blocks), (checkpoint.directory / format::kBlocksFile).string(),
                            format::BlockChecks::kCounts);
}

void attach_texts(OpenCheckpoint& checkpoint, OpenedTexts texts) {
  if (!texts.manifest) return;
  const std::string blocks_path = (checkpoint.directory / format::kBlocksFile).string();
  checkpoint.manifest_crc32c = format::crc32c(base::as_bytes(*texts.manifest));
  const std::filesystem::path manifest_path = checkpoint.directory / format::kManifestFile;
  checkpoint.manifest =
      os::about(manifest_path, [&] { return format::parse_manifest(*texts.manifest, manifest_path.string()); });
  const std::uint32_t found = format::crc32c(texts.blocks);
  if (found != checkpoint.manifest->blocks_crc32c) {
    throw Error(ErrorKind::kIntegrity,
                fmt::format("'{}' has checksum {:08x}, but {} names {:08x}: one of the two is damaged", blocks_path,
                            found, format::kManifestFile, checkpoint.manifest->blocks_crc32c),
                {0, blocks_path});
  }
  os::about(blocks_path, [&] { checkpoint.blocks.emplace(std::move(texts.blocks), blocks_path); });
}

}  // namespace cairn::opening
