// Opens a directory by all ranks: rank 0 lists it, each header and index is read by one rank, rank 0 judges from
// summaries, and the tensors are put in order by stretches, as those of a save are.
//
// Nothing but memory fails here: whatever else is not as it should be on any rank ends the attempt on all, and open_here() then reads the
// directory on rank 0 alone, which words the error, recognises other dialects, and waits for a checkpoint that is being
// replaced. So errors are the same ones in the same order, whatever ranks there are.
#include <algorithm>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "comm/agree.hpp"
#include "directory/open_parts.hpp"
#include "directory/root.hpp"
#include "interop/outline.hpp"
#include "os/file.hpp"
#include "plan/extents.hpp"
#include "plan/stored_tensors.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Names that each rank gives for the borders between stretches: stretches then differ by a few percent.
constexpr std::size_t kSamplesOfRank = 64;

/// What all ranks are told to read.
struct Listing {
  fs::path directory;
  std::vector<std::string> files;  ///< by name
  std::vector<std::string> indexes;
  OpenedTexts texts;
};

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

class Opening {
 public:
  Opening(comm::Communicator& communicator, Links links)
      : communicator_(communicator), links_(links), ranks_(static_cast<std::size_t>(communicator.size())) {}

  /// Collective.
  std::optional<OpenCheckpoint> open(const fs::path& given) {
    base::Bytes bytes;
    const bool is_root = communicator_.rank() == 0;
    if (is_root) attempt([&] { bytes = list(given); });
    if (!shared(bytes)) return std::nullopt;
    attempt([&] { bytes = read(bytes); });
    if (!all_well()) return std::nullopt;
    const std::vector<base::Bytes> summaries = communicator_.gather(bytes, 0);
    bytes.clear();
    if (is_root) attempt([&] { bytes = judge(summaries); });
    if (!shared(bytes)) return std::nullopt;
    attempt([&] { bytes = place(bytes); });
    if (!all_well()) return std::nullopt;
    std::vector<base::Bytes> messages = communicator_.all_gather(bytes);
    attempt([&] { messages = spread(messages); });
    if (!all_well()) return std::nullopt;
    messages = communicator_.all_to_all(std::move(messages));
    attempt([&] {
      auto run = plan::merge_runs(messages);
      is_well_ = run.has_value();
      if (run) bytes = std::move(*run);
    });
    if (!all_well()) return std::nullopt;
    messages = communicator_.all_gather(bytes);
    attempt([&] { opened_.stored.tensors = plan::StoredTensors(plan::PackedCatalog(messages)); });
    if (!all_well()) return std::nullopt;
    return std::move(opened_);
  }

 private:
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      is_well_ = false;
      is_out_of_memory_ = true;
    } catch (const std::exception&) {
      is_well_ = false;
    }
  }

  /// Collective. Throws as comm::agree() when a rank has run out of memory: rank 0 alone would need more.
  bool all_well() {
    const bool all = communicator_.max(is_well_ ? 0 : 1) == 0;
    if (!all) {
      comm::agree(communicator_, "open the checkpoint", [&] {
        if (is_out_of_memory_) throw std::bad_alloc();
      });
    }
    return all;
  }

  /// Collective: shares what rank 0 has; false on all ranks where it has nothing.
  bool shared(base::Bytes& bytes) {
    if (!is_well_) bytes.clear();
    communicator_.share(bytes, 0);
    if (!bytes.empty()) return true;
    static_cast<void>(all_well());
    return false;
  }

  /// Rank 0: what there is to read. No bytes where open_here() must look.
  base::Bytes list(const fs::path& given) {
    const fs::path path = given.has_filename() ? given : given.parent_path();
    if (!fs::is_directory(path) || path.string().ends_with(kPartialSuffix)) return {};
    const std::vector<os::DirectoryEntry> entries = os::list_directory(path);
    check_links(path, entries, links_);
    Listing listing;
    listing.directory = path;
    listing.texts = read_texts(path);
    directory_ = list_directory(path, entries, listing.files, &listing.indexes);
    if (listing.files.empty()) return {};
    std::ranges::sort(listing.files);
    base::ByteWriter out;
    out.text(path.string());
    put_strings(out, listing.files);
    put_strings(out, listing.indexes);
    out.u64(listing.texts.manifest ? 1 : 0);
    out.text(listing.texts.manifest.value_or(""));
    out.blob(listing.texts.blocks);
    return out.take();
  }

  /// This rank's headers and indexes, as summaries.
  base::Bytes read(std::span<const std::byte> listed) {
    base::ByteReader in(listed);
    opened_.directory = in.text();
    files_ = get_strings(in);
    const std::vector<std::string> indexes = get_strings(in);
    const bool has_manifest = in.u64() != 0;
    manifest_ = in.text();
    OpenedTexts texts{std::nullopt, in.blob()};
    if (has_manifest) texts.manifest = manifest_;
    attach_texts(opened_, std::move(texts));
    base::ByteWriter out;
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    for (std::size_t i = rank; i < files_.size(); i += ranks_) {
      const auto& header = headers_.emplace_back(read_header_of(opened_.directory / files_[i], opened_.blocks));
      const interop::FileSummary summary = interop::summary_of(header);
      out.u64(i);
      out.u64(header.file_bytes);
      out.u64(summary.names.count);
      out.u64(summary.names.sum);
      out.u64(summary.data_bytes);
      put_map(out, header.metadata);
    }
    out.u64(files_.size());
    // From the last rank on: the first ones have a file more.
    for (std::size_t i = ranks_ - 1 - rank; i < indexes.size(); i += ranks_) {
      const fs::path path = opened_.directory / indexes[i];
      const format::HfIndex index = format::parse_hf_index(read_index_text(path), path.string());
      out.text(indexes[i]);
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

  /// Rank 0: sections, metadata and warnings, for all. No bytes where open_here() must look.
  base::Bytes judge(const std::vector<base::Bytes>& summaries) {
    interop::FileSummaries files;
    interop::IndexSummaries indexes;
    for (const base::Bytes& bytes : summaries) {
      base::ByteReader in(bytes);
      for (std::uint64_t i = in.u64(); i < files_.size(); i = in.u64()) {
        format::SafetensorsHeader& header = directory_.safetensors[files_[i]];
        interop::FileSummary& summary = files[files_[i]];
        header.file_bytes = in.u64();
        summary.names.count = in.u64();
        summary.names.sum = in.u64();
        summary.data_bytes = in.u64();
        header.metadata = get_map(in);
      }
      while (!in.done()) {
        const std::string name = in.text();
        format::HfIndex& index = directory_.indexes[name];
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
    const auto outline = interop::outline(directory_, files, indexes);
    if (!outline) return {};
    for (const auto& [name, header] : directory_.safetensors) {
      opened_.stored.files.push_back({name, header.file_bytes});
    }
    if (opened_.manifest) check_files(opened_, links_);
    if (manifest_text(opened_.directory) != manifest_) return {};  // replaced meanwhile
    base::ByteWriter out;
    for (const auto& file : opened_.stored.files) {
      out.u64(file.size_bytes);
      const bool is_empty = files.at(file.name).names.count == 0;
      out.text(is_empty ? std::string_view() : outline->section_of_file.at(file.name));
    }
    put_map(out, outline->metadata);
    put_strings(out, outline->disputed_metadata);
    put_strings(out, outline->carried);
    put_strings(out, outline->warnings);
    return out.take();
  }

  /// This rank's tensors, in order; some of their names, for all.
  base::Bytes place(std::span<const std::byte> judged) {
    base::ByteReader in(judged);
    opened_.stored.files.clear();
    for (const std::string& name : files_) {
      opened_.stored.files.push_back({name, in.u64()});
      sections_.push_back(in.text());
    }
    const std::vector<std::string_view> sections(sections_.begin(), sections_.end());
    opened_.group_of_file = plan::section_groups(sections);
    opened_.metadata = get_map(in);
    opened_.disputed_metadata = get_strings(in);
    opened_.carried = get_strings(in);
    opened_.warnings = get_strings(in);
    auto file = static_cast<std::size_t>(communicator_.rank());
    std::vector<plan::CatalogKey> keys;
    std::vector<format::PlacedTensor> unsorted;
    for (const format::SafetensorsHeader& header : headers_) {
      for (const format::TensorEntry& entry : header.tensors) {
        unsorted.push_back(interop::whole_tensor(sections_[file], entry, header, static_cast<std::uint32_t>(file)));
        keys.push_back({sections_[file], entry.name});
      }
      file += ranks_;
    }
    tensors_.reserve(unsorted.size());
    for (const std::uint32_t number : plan::catalog_order(keys)) tensors_.push_back(unsorted[number]);
    base::ByteWriter out;
    const std::size_t samples = std::min(kSamplesOfRank, tensors_.size());
    for (std::size_t i = 0; i < samples; ++i) {
      const format::PlacedTensor& tensor = tensors_[(2 * i + 1) * tensors_.size() / (2 * samples)];
      out.text(tensor.section);
      out.text(tensor.name);
    }
    return out.take();
  }

  /// The parts of this rank's tensors that lie in each rank's stretch.
  std::vector<base::Bytes> spread(const std::vector<base::Bytes>& samples) {
    std::vector<std::pair<std::string, std::string>> borders;
    for (const base::Bytes& bytes : samples) {
      base::ByteReader in(bytes);
      while (!in.done()) {
        std::string section = in.text();
        borders.emplace_back(std::move(section), in.text());
      }
    }
    std::ranges::sort(borders, [](const auto& a, const auto& b) {
      return plan::in_catalog_order(a.first, a.second, b.first, b.second);
    });
    std::vector<base::Bytes> runs(ranks_);
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      plan::CatalogPacker packer;
      const bool is_last = rank + 1 == ranks_ || borders.empty();
      const auto* border = is_last ? nullptr : &borders[(rank + 1) * borders.size() / ranks_];
      for (; next < tensors_.size(); ++next) {
        const format::PlacedTensor& tensor = tensors_[next];
        if (border != nullptr && !plan::in_catalog_order(tensor.section, tensor.name, border->first, border->second)) {
          break;
        }
        packer.add(tensor);
      }
      runs[rank] = packer.take();
    }
    tensors_ = {};
    headers_ = {};
    return runs;
  }

  comm::Communicator& communicator_;
  Links links_;
  std::size_t ranks_;
  bool is_well_ = true;
  bool is_out_of_memory_ = false;
  OpenCheckpoint opened_;
  interop::Directory directory_;  ///< on rank 0
  std::string manifest_;          ///< its text, or empty
  std::vector<std::string> files_;
  std::vector<std::string> sections_;               ///< of each file; empty where it has no tensors
  std::vector<format::SafetensorsHeader> headers_;  ///< of this rank's files
  std::vector<format::PlacedTensor> tensors_;       ///< the same, in catalog order
};

}  // namespace

std::optional<OpenCheckpoint> open_together(comm::Communicator& communicator, const fs::path& path, Links links) {
  return Opening(communicator, links).open(path);
}

}  // namespace cairn::checkpoint
