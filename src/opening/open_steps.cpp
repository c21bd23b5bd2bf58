#include "opening/open_steps.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "format/hf_index.hpp"
#include "opening/open_parts.hpp"
#include "plan/catalog.hpp"
#include "plan/extents.hpp"
#include "plan/stored_tensors.hpp"

namespace cairn::opening {
namespace {

/// Samples of all ranks together, about: stretches are then 1/1024 of the catalog on average, and sorting the samples on
/// every rank costs less than a millisecond.
constexpr std::size_t kSamples = 1024;

}  // namespace

base::Bytes announce(const OpenCheckpoint& opened, const std::vector<std::string>& files,
                     const std::vector<std::string>& indexes) {
  base::ByteWriter out;
  out.text(opened.directory.string());
  put_part_of(out, opened);
  put_manifest(out, opened);
  put_strings(out, files);
  put_strings(out, indexes);
  return out.take();
}

Listing take_announced(std::span<const std::byte> announced, base::Bytes blocks) {
  base::ByteReader in(announced);
  Listing listing;
  listing.opened.directory = in.text_view();
  get_part_of(in, listing.opened);
  get_manifest(in, listing.opened);
  attach_blocks(listing.opened, std::move(blocks));
  for (std::uint64_t left = in.u64(); left > 0; --left) listing.opened.stored.files.push_back({in.text(), 0});
  listing.indexes = get_strings(in);
  return listing;
}

base::Bytes read_share(const Listing& listing, const ReadFiles& read, HeaderShare& share) {
  const std::vector<format::StoredFile>& files = listing.opened.stored.files;
  const auto rank = static_cast<std::size_t>(share.rank);
  const auto ranks = static_cast<std::size_t>(share.ranks);
  base::ByteWriter out;
  for (std::size_t i = rank; i < files.size(); i += ranks) {
    const auto& header = share.headers.emplace_back(read.header(listing.opened, files[i].name));
    const interop::FileSummary summary = interop::summary_of(header);
    out.u64(i);
    out.u64(header.file_bytes);
    out.u64(summary.names.count);
    out.u64(summary.names.sum);
    out.u64(summary.data_bytes);
    out.u64(file_digest_in(listing.opened.blocks, files[i].name));
    put_map(out, header.metadata);
  }
  out.u64(files.size());
  // From the last rank on: the first ones have a file more.
  for (std::size_t i = ranks - 1 - rank; i < listing.indexes.size(); i += ranks) {
    const std::string& name = listing.indexes[i];
    const std::string path = listing.opened.path_of(name).string();
    const format::HfIndex index = format::parse_hf_index(read.index(listing.opened, name), path);
    out.text(name);
    put_strings(out, index.files);
    for (const interop::NameSum& sum : interop::summary_of(index)) {
      out.u64(sum.count);
      out.u64(sum.sum);
    }
    out.text(index.metadata.dump());
    out.text(index.extra.dump());
  }
  return out.take();
}

std::optional<interop::Outline> judge(Listing& listing, interop::Directory& directory,
                                      const comm::Messages& summaries) {
  std::vector<format::StoredFile>& stored = listing.opened.stored.files;
  listing.digests.assign(stored.size(), 0);
  interop::FileSummaries files;
  interop::IndexSummaries indexes;
  for (const base::Bytes& bytes : summaries) {
    base::ByteReader in(bytes);
    for (std::uint64_t i = in.u64(); i < stored.size(); i = in.u64()) {
      format::SafetensorsHeader& header = directory.safetensors[stored[i].name];
      interop::FileSummary& summary = files[stored[i].name];
      header.file_bytes = in.u64();
      stored[i].size_bytes = header.file_bytes;
      summary.names.count = in.u64();
      summary.names.sum = in.u64();
      summary.data_bytes = in.u64();
      listing.digests[i] = static_cast<std::uint32_t>(in.u64());
      header.metadata = get_map(in);
    }
    while (!in.done()) {
      const std::string name = in.text();
      format::HfIndex& index = directory.indexes[name];
      index.files = get_strings(in);
      for (std::size_t i = 0; i < index.files.size(); ++i) {
        interop::NameSum& sum = indexes[name].emplace_back();
        sum.count = in.u64();
        sum.sum = in.u64();
      }
      index.metadata = base::Json::parse(in.text(), name);
      index.extra = base::Json::parse(in.text(), name);
    }
  }
  auto outline = interop::outline(directory, files, indexes);
  if (!outline) return std::nullopt;
  for (const auto& [name, summary] : files) {
    if (summary.names.count == 0) outline->section_of_file.at(name).clear();
  }
  return outline;
}

base::Bytes encode_judged(const Listing& listing, const interop::Outline& outline) {
  base::ByteWriter out;
  for (const auto& file : listing.opened.stored.files) {
    out.u64(file.size_bytes);
    out.text(outline.section_of_file.at(file.name));
  }
  put_about(out, outline.about);
  put_map(out, outline.metadata);
  put_strings(out, outline.disputed_metadata);
  put_strings(out, outline.carried);
  put_strings(out, outline.warnings);
  return out.take();
}

void take_judged(std::span<const std::byte> judged, Listing& listing) {
  base::ByteReader in(judged);
  OpenCheckpoint& opened = listing.opened;
  std::vector<std::string_view> sections;
  for (format::StoredFile& file : opened.stored.files) {
    file.size_bytes = in.u64();
    sections.push_back(in.text_view());
  }
  opened.group_of_file = plan::section_groups(sections);
  listing.sections.assign(sections.begin(), sections.end());
  opened.about = get_about(in);
  opened.metadata = get_map(in);
  opened.disputed_metadata = get_strings(in);
  opened.carried = get_strings(in);
  opened.warnings = get_strings(in);
}

base::Bytes place(const Listing& listing, HeaderShare& share) {
  const auto rank = static_cast<std::size_t>(share.rank);
  const auto ranks = static_cast<std::size_t>(share.ranks);
  std::size_t file = rank;
  std::vector<plan::CatalogKey> keys;
  std::vector<format::PlacedTensor> unsorted;
  for (const format::SafetensorsHeader& header : share.headers) {
    const std::string& section = listing.sections[file];
    for (const format::TensorEntry& entry : header.tensors) {
      unsorted.push_back(interop::whole_tensor(section, entry, header, static_cast<std::uint32_t>(file)));
      keys.push_back({section, entry.name});
    }
    file += ranks;
  }
  std::vector<format::PlacedTensor>& tensors = share.tensors;
  tensors.reserve(unsorted.size());
  for (const std::uint32_t number : plan::catalog_order(keys)) tensors.push_back(unsorted[number]);

  base::ByteWriter out;
  const std::size_t readers = std::max<std::size_t>(1, std::min(ranks, listing.opened.stored.files.size()));
  const std::size_t every = base::ceil_div(readers, kSamples);  // readers of which one gives samples
  if (rank % every != 0) return out.take();
  const std::size_t samples = std::min(base::ceil_div(kSamples, base::ceil_div(readers, every)), tensors.size());
  // Another place on every rank (golden ratio): files of all ranks are cut alike, and middles may all lie between two.
  const double first = std::fmod(0.6180339887498949 * (share.rank + 1), 1.0);
  for (std::size_t i = 0; i < samples; ++i) {
    const double at = (static_cast<double>(i) + first) / static_cast<double>(samples);
    const format::PlacedTensor& tensor = tensors[static_cast<std::size_t>(at * static_cast<double>(tensors.size()))];
    out.text(tensor.section);
    out.text(tensor.name);
  }
  return out.take();
}

comm::Messages spread(HeaderShare& share, const comm::Messages& samples) {
  comm::Messages runs(samples.size());
  const std::vector<format::PlacedTensor> tensors = std::exchange(share.tensors, {});
  const std::vector<format::SafetensorsHeader> headers = std::exchange(share.headers, {});
  if (tensors.empty()) return runs;
  std::vector<plan::CatalogKey> names;
  for (const base::Bytes& bytes : samples) {
    base::ByteReader in(bytes);
    while (!in.done()) {
      const std::string_view section = in.text_view();
      names.push_back({section, in.text_view()});
    }
  }
  std::vector<plan::CatalogKey> borders;
  borders.reserve(names.size());
  for (const std::uint32_t number : plan::catalog_order(names)) borders.push_back(names[number]);
  const auto comes_before = [](const format::PlacedTensor& tensor, const plan::CatalogKey& border) {
    return plan::in_catalog_order(tensor.section, tensor.name, border.section, border.name);
  };
  plan::CatalogPacker packer;
  std::size_t to = 0;
  auto behind = borders.begin();
  for (const format::PlacedTensor& tensor : tensors) {
    behind = std::upper_bound(behind, borders.end(), tensor, comes_before);
    const auto stretch = static_cast<std::size_t>(behind - borders.begin());
    const std::size_t owner = stretch * samples.size() / (borders.size() + 1);
    if (owner != to) runs[std::exchange(to, owner)] = packer.take();
    packer.add(tensor);
  }
  runs[to] = packer.take();
  return runs;
}

}  // namespace cairn::opening
