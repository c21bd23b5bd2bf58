#include "directory/open.hpp"

#include <fmt/core.h>

#include "directory/root.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

void put_strings(base::ByteWriter& out, const std::vector<std::string>& values) {
  out.u64(values.size());
  for (const std::string& value : values) out.text(value);
}

std::vector<std::string> get_strings(base::ByteReader& in) {
  std::vector<std::string> values;
  for (std::uint64_t left = in.u64(); left > 0; --left) values.push_back(in.text());
  return values;
}

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
  }
}

std::vector<interop::QuantisedMoments> get_quantised(base::ByteReader& in) {
  std::vector<interop::QuantisedMoments> quantised;
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    interop::QuantisedMoments moments;
    for (std::string* text : {&moments.codec, &moments.section, &moments.first, &moments.second}) *text = in.text();
    moments.shape = in.u64s();
    moments.parts = get_strings(in);
    quantised.push_back(std::move(moments));
  }
  return quantised;
}

}  // namespace

base::Bytes encode_open(const OpenCheckpoint& checkpoint, const OpenedTexts& texts) {
  base::ByteWriter out;
  out.text(checkpoint.directory.string());
  out.u64(static_cast<std::uint64_t>(checkpoint.dialect));
  put_stored(out, checkpoint.stored);
  out.u64s(std::vector<std::uint64_t>(checkpoint.group_of_file.begin(), checkpoint.group_of_file.end()));
  put_quantised(out, checkpoint.quantised);
  out.u64(checkpoint.metadata.size());
  for (const auto& [key, value] : checkpoint.metadata) {
    out.text(key);
    out.text(value);
  }
  put_strings(out, checkpoint.disputed_metadata);
  put_strings(out, checkpoint.carried);
  put_strings(out, checkpoint.warnings);
  out.u64(texts.manifest ? 1 : 0);
  out.text(texts.manifest.value_or(""));
  out.blob(texts.blocks);
  return out.take();
}

OpenCheckpoint decode_open(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  OpenCheckpoint checkpoint;
  checkpoint.directory = in.text();
  checkpoint.dialect = static_cast<interop::Dialect>(in.u64());
  checkpoint.stored = get_stored(in);
  for (const std::uint64_t group : in.u64s()) checkpoint.group_of_file.push_back(static_cast<std::uint32_t>(group));
  checkpoint.quantised = get_quantised(in);
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    std::string key = in.text();
    checkpoint.metadata[std::move(key)] = in.text();
  }
  checkpoint.disputed_metadata = get_strings(in);
  checkpoint.carried = get_strings(in);
  checkpoint.warnings = get_strings(in);
  OpenedTexts texts;
  const bool has_manifest = in.u64() != 0;
  std::string manifest = in.text();
  if (has_manifest) texts.manifest = std::move(manifest);
  texts.blocks = in.blob();
  attach_texts(checkpoint, std::move(texts));
  return checkpoint;
}

void attach_texts(OpenCheckpoint& checkpoint, OpenedTexts texts) {
  if (!texts.manifest) return;
  const std::string blocks_path = (checkpoint.directory / kBlocksFile).string();
  checkpoint.manifest_crc32c = format::crc32c(base::as_bytes(*texts.manifest));
  const std::filesystem::path manifest_path = checkpoint.directory / kManifestFile;
  checkpoint.manifest =
      os::about(manifest_path, [&] { return format::parse_manifest(*texts.manifest, manifest_path.string()); });
  if (checkpoint.dialect == interop::Dialect::kHdf5) return;  // no block table
  const std::uint32_t found = format::crc32c(texts.blocks);
  if (found != checkpoint.manifest->blocks_crc32c) {
    throw Error(ErrorKind::kIntegrity,
                fmt::format("'{}' has checksum {:08x}, but {} names {:08x}: one of the two is damaged", blocks_path,
                            found, kManifestFile, checkpoint.manifest->blocks_crc32c),
                {0, blocks_path});
  }
  os::about(blocks_path, [&] { checkpoint.blocks.emplace(std::move(texts.blocks), blocks_path); });
}

}  // namespace cairn::checkpoint
