#include "opening/open_steps.hpp"

#include <algorithm>
#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/checked.hpp"
#include "format/hf_index.hpp"
#include "interop/file_names.hpp"
#include "plan/catalog.hpp"
#include "plan/extents.hpp"
#include "plan/stored_tensors.hpp"
#include "planning/catalog_steps.hpp"

namespace cairn::opening {
namespace {

// Rest of an index in messages.
constexpr base::JsonOptions kPython{.dialect = base::JsonDialect::kPython};
constexpr base::JsonFormat kPythonFormat{.dialect = base::JsonDialect::kPython};

// Fields of messages. for_fields() lists the fields of a type once, for writing (Put) and for reading (Get).

template <class T, class Object>
concept Is = std::same_as<std::remove_const_t<T>, Object>;

template <class Wire, Is<interop::About> T>
void for_fields(Wire& wire, T& about) {
  wire(about.dialect, about.version, about.parallel, about.quantisation, about.step, about.values, about.sources,
       about.left);
}

template <class Wire, Is<interop::Description> T>
void for_fields(Wire& wire, T& description) {
  wire(description.about, description.metadata, description.disputed_metadata, description.carried,
       description.warnings);
}

template <class Wire, Is<format::StoredFile> T>
void for_fields(Wire& wire, T& file) {
  wire(file.name, file.size_bytes);
}

template <class Wire, Is<interop::ScaledBox> T>
void for_fields(Wire& wire, T& scaled) {
  wire(scaled.box.offset, scaled.box.shape, scaled.scales);
}

template <class Wire, Is<interop::QuantisedMoments> T>
void for_fields(Wire& wire, T& moments) {
  wire(moments.codec, moments.section, moments.first, moments.second, moments.shape, moments.parts,
       moments.one_scale_a_box, moments.boxes);
}

template <class Wire, Is<interop::NameSum> T>
void for_fields(Wire& wire, T& sum) {
  wire(sum.count, sum.sum);
}

/// Only the directories and the manifest, without its thousands of data files, which every rank would have to parse.
template <class Wire, Is<OpenCheckpoint> T>
void for_fields(Wire& wire, T& opened) {
  wire(opened.directory, opened.part_of);
  wire.manifest(opened);
}

class Put {
 public:
  template <class... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }
  void manifest(const OpenCheckpoint& opened) {
    put(opened.manifest.has_value());
    if (!opened.manifest) return;
    format::Manifest manifest = *opened.manifest;
    manifest.data_files.clear();
    (*this)(opened.manifest_crc32c, format::encode_manifest(manifest));
  }
  base::Bytes take() { return out_.take(); }

 private:
  template <std::integral T>
  void put(const T& number) {
    out_.u64(static_cast<std::uint64_t>(number));
  }
  void put(std::string_view text) { out_.text(text); }
  void put(const std::string& text) { out_.text(text); }
  void put(const std::filesystem::path& path) { out_.text(path.native()); }
  void put(const base::Bytes& bytes) { out_.blob(bytes); }
  void put(const std::optional<std::uint64_t>& number) { (*this)(number.has_value(), number.value_or(0)); }
  template <class T>
  void put(const std::vector<T>& list) {
    put(list.size());
    for (const T& item : list) put(item);
  }
  template <class Key, class Value>
  void put(const std::map<Key, Value>& map) {
    put(map.size());
    for (const auto& [key, value] : map) (*this)(key, value);
  }
  template <class T>
  void put(const T& object) {
    for_fields(*this, object);
  }

  base::ByteWriter out_;
};

class Get {
 public:
  explicit Get(std::span<const std::byte> message) : in_(message) {}
  template <class... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }
  template <class T>
  T next() {
    T field{};
    get(field);
    return field;
  }
  void manifest(OpenCheckpoint& opened) {
    if (!next<bool>()) return;
    get(opened.manifest_crc32c);
    opened.manifest = format::parse_manifest(in_.text_view(), (opened.directory / format::kManifestFile).string());
  }
  [[nodiscard]] bool done() const { return in_.done(); }

 private:
  template <std::integral T>
  void get(T& number) {
    number = static_cast<T>(in_.u64());
  }
  void get(std::string_view& text) { text = in_.text_view(); }
  void get(std::string& text) { text = in_.text_view(); }
  void get(std::filesystem::path& path) { path = in_.text_view(); }
  void get(base::Bytes& bytes) { bytes = in_.blob(); }
  void get(std::optional<std::uint64_t>& number) {
    const bool is_there = next<bool>();
    const auto value = next<std::uint64_t>();
    if (is_there) number = value;
  }
  template <class T>
  void get(std::vector<T>& list) {
    for (auto left = next<std::uint64_t>(); left > 0; --left) get(list.emplace_back());
  }
  template <class Key, class Value>
  void get(std::map<Key, Value>& map) {
    for (auto left = next<std::uint64_t>(); left > 0; --left) {
      Key key = next<Key>();
      get(map[std::move(key)]);
    }
  }
  template <class T>
  void get(T& object) {
    for_fields(*this, object);
  }

  base::ByteReader in_;
};

/// `blocks`: bytes of another rank's BlockRows; empty if there are none.
void attach_blocks(OpenCheckpoint& opened, base::Bytes blocks) {
  if (blocks.empty()) return;
  opened.blocks.emplace(std::move(blocks), (opened.directory / format::kBlocksFile).string(),
                        format::BlockChecks::kCounts);
}

}  // namespace

base::Bytes announce(const Listing& listing) {
  std::vector<std::string_view> files;
  for (const format::StoredFile& file : listing.opened.stored.files) files.push_back(file.name);
  Put out;
  out(listing.opened, files, listing.indexes);
  return out.take();
}

Listing take_announced(std::span<const std::byte> announced, base::Bytes blocks) {
  Get in(announced);
  Listing listing;
  std::vector<std::string_view> files;
  in(listing.opened, files, listing.indexes);
  for (const std::string_view file : files) listing.opened.stored.files.push_back({std::string(file), 0});
  attach_blocks(listing.opened, std::move(blocks));
  return listing;
}

base::Bytes read_share(const Listing& listing, const ReadText& read, HeaderShare& share) {
  const std::vector<format::StoredFile>& files = listing.opened.stored.files;
  const auto rank = static_cast<std::size_t>(share.rank);
  const auto ranks = static_cast<std::size_t>(share.ranks);
  const auto text_of = [&](const std::string& name) -> const FileText& {
    return share.texts[name] = read(listing.opened, name);
  };
  Put out;
  for (std::size_t i = rank; i < files.size(); i += ranks) {
    const FileText& text = text_of(files[i].name);
    const auto& header = share.headers.emplace_back(format::parse_header(text.text, text.file_bytes, files[i].name));
    const interop::FileSummary summary = interop::summary_of(header);
    out(i, header.file_bytes, summary.names, summary.data_bytes, file_digest_in(listing.opened.blocks, files[i].name),
        header.metadata);
  }
  out(files.size());
  // Starts with the last rank, because the first ranks have one more file.
  for (std::size_t i = ranks - 1 - rank; i < listing.indexes.size(); i += ranks) {
    const std::string& name = listing.indexes[i];
    const std::string& text = text_of(name).text;
    if (text.find("\"weight_map\"") == std::string::npos) continue;  // no map: rank 0 will need all headers
    const format::HfIndex index = format::parse_hf_index(text, name);
    out(name, index.files);
    for (const interop::NameSum& sum : interop::summary_of(index)) out(sum);
    out(index.metadata.dump(kPythonFormat), index.extra.dump(kPythonFormat));
  }
  return out.take();
}

std::optional<interop::Outline> judge(Listing& listing, const comm::Messages& summaries) {
  std::vector<format::StoredFile>& stored = listing.opened.stored.files;
  listing.digests.assign(stored.size(), 0);
  interop::FileSummaries files;
  interop::IndexSummaries indexes;
  for (const base::Bytes& bytes : summaries) {
    Get in(bytes);
    for (auto i = in.next<std::size_t>(); i < stored.size(); i = in.next<std::size_t>()) {
      format::SafetensorsHeader& header = listing.found.safetensors[stored[i].name];
      interop::FileSummary& summary = files[stored[i].name];
      in(header.file_bytes, summary.names, summary.data_bytes, listing.digests[i], header.metadata);
      stored[i].size_bytes = header.file_bytes;
    }
    while (!in.done()) {
      const auto name = in.next<std::string>();
      format::HfIndex& index = listing.found.indexes[name];
      in(index.files);
      indexes[name].resize(index.files.size());
      for (interop::NameSum& sum : indexes[name]) in(sum);
      index.metadata = base::Json::parse(in.next<std::string>(), name, kPython);
      index.extra = base::Json::parse(in.next<std::string>(), name, kPython);
    }
  }
  if (listing.found.indexes.size() < listing.indexes.size()) return std::nullopt;  // an index has no map
  auto outline = interop::outline(listing.found, files, indexes);
  if (!outline) return std::nullopt;
  for (const auto& [name, summary] : files) {
    if (summary.names.count == 0) outline->section_of_file.at(name).clear();
  }
  add_warnings(outline->warnings, listing);
  return outline;
}

base::Bytes encode_judged(const Listing& listing, const interop::Outline& outline) {
  Put out;
  for (const auto& file : listing.opened.stored.files) out(file.size_bytes, outline.section_of_file.at(file.name));
  out(static_cast<const interop::Description&>(outline));
  return out.take();
}

void take_judged(std::span<const std::byte> judged, Listing& listing) {
  Get in(judged);
  std::vector<std::string_view> sections;
  for (format::StoredFile& file : listing.opened.stored.files) in(file.size_bytes, sections.emplace_back());
  listing.opened.group_of_file = plan::section_groups(sections);
  listing.sections.assign(sections.begin(), sections.end());
  in(static_cast<interop::Description&>(listing.opened));
}

base::Bytes place(const Listing& listing, HeaderShare& share) {
  const auto ranks = static_cast<std::size_t>(share.ranks);
  auto file = static_cast<std::size_t>(share.rank);
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
  share.tensors.reserve(unsorted.size());
  for (const std::uint32_t number : plan::catalog_order(keys)) share.tensors.push_back(unsorted[number]);
  const std::size_t readers = std::max<std::size_t>(1, std::min(ranks, listing.opened.stored.files.size()));
  return planning::sample_names(share.tensors, share.rank, static_cast<int>(readers));
}

comm::Messages spread(HeaderShare& share, const comm::Messages& samples) {
  comm::Messages runs(samples.size());
  const std::vector<format::PlacedTensor> tensors = std::exchange(share.tensors, {});
  const std::vector<format::SafetensorsHeader> headers = std::exchange(share.headers, {});
  if (tensors.empty()) return runs;
  const planning::Stretches stretches(samples);
  plan::CatalogPacker packer;
  std::size_t to = 0;
  for (const format::PlacedTensor& tensor : tensors) {
    const std::size_t owner = stretches.rank_of(tensor.section, tensor.name);
    if (owner != to) runs[std::exchange(to, owner)] = packer.take();
    packer.add(tensor);
  }
  runs[to] = packer.take();
  return runs;
}

base::Bytes encode_texts(const FileTexts& texts) {
  Put out;
  for (const auto& [name, text] : texts) out(name, text.file_bytes, text.text);
  return out.take();
}

void take_texts(comm::Messages messages, interop::Directory& directory) {
  directory.indexes.clear();
  for (base::Bytes& message : messages) {
    Get in(message);
    while (!in.done()) {
      const auto name = in.next<std::string>();
      const auto file_bytes = in.next<std::uint64_t>();
      const auto text = in.next<std::string_view>();
      const auto part = directory.part_of.find(name);
      const std::string& folder = part == directory.part_of.end() ? directory.path : part->second;
      if (interop::is_data_name(name)) {
        directory.safetensors[name] = format::parse_header(text, file_bytes, folder + "/" + name);
      } else {
        directory.json[name] = text;
      }
    }
    message = {};
  }
}

base::Bytes encode_open(const OpenCheckpoint& opened) {
  Put out;
  out(opened, static_cast<const interop::Description&>(opened), opened.stored.files,
      opened.stored.tensors.catalog().run(), opened.group_of_file, opened.quantised, opened.reader_of_file,
      opened.blocks ? opened.blocks->bytes() : base::Bytes());
  return out.take();
}

OpenCheckpoint decode_open(std::span<const std::byte> bytes) {
  Get in(bytes);
  OpenCheckpoint opened;
  in(opened, static_cast<interop::Description&>(opened), opened.stored.files);
  const auto run = in.next<base::Bytes>();
  opened.stored.tensors = plan::StoredTensors(plan::PackedCatalog({&run, 1}));
  in(opened.group_of_file, opened.quantised, opened.reader_of_file);
  attach_blocks(opened, in.next<base::Bytes>());
  return opened;
}

}  // namespace cairn::opening
