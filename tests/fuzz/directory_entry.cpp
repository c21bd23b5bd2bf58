// A directory as a whole, opened by every dialect: described, and outlined from summaries.
//
// The input lists files; each begins with a line "#@<name>", and its content depends on the name:
//
//   *.safetensors      its header: a line "<name> <dtype> <sizes>" for each tensor, and "=<key> <value>" for metadata
//   index, config ...  text that dialects look into (interop::most_text_bytes)
//   cairn.json         Cairn's manifest, of which the dialects see the list of files
//   <folder>/          a folder; followed by a name, a file in it
//   !alone             the user pointed at one file
//   anything else      a file that dialects can open, such as a pickle
//
// "2:" before a name puts the file into a second directory, "o:" makes a pickle of which only the outline is present.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "fuzz_checks.hpp"
#include "fuzz_entry.hpp"
#include "interop/dialect.hpp"
#include "interop/directory.hpp"
#include "interop/file_names.hpp"
#include "interop/outline.hpp"
#include "interop/paddle/written.hpp"
#include "interop/reading.hpp"
#include "recognised_checks.hpp"

namespace cairn::fuzz {
namespace {

using interop::Directory;

/// Removes the text up to and including `end`, or all text if it has no `end`; returns the text before `end`.
std::string_view take_up_to(std::string_view& text, std::string_view end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(std::min(at + end.size(), text.size()));
  return out;
}

/// Removes the last space and the text after it; returns that text.
std::string_view take_last_word(std::string_view& text) {
  const std::size_t space = text.rfind(' ');
  const std::string_view out = space == std::string_view::npos ? text : text.substr(space + 1);
  text = text.substr(0, space == std::string_view::npos ? 0 : space);
  return out;
}

std::vector<std::uint64_t> sizes_of(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  while (!text.empty()) {
    const std::string_view word = take_up_to(text, ",");
    std::uint64_t size = 0;
    std::from_chars(word.data(), word.data() + word.size(), size);
    sizes.push_back(size);
  }
  return sizes;
}

/// The header that a writer makes from the lines, parsed like a header from disk; nothing for invalid lines.
std::optional<format::SafetensorsHeader> header_of(std::string_view lines) {
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
  while (!lines.empty()) {
    std::string_view line = take_up_to(lines, "\n");
    if (line.starts_with('=')) {
      const std::string_view key = take_up_to(line, " ");
      metadata.emplace(key.substr(1), line);
      continue;
    }
    const std::string_view sizes = take_last_word(line);
    const std::string_view dtype = take_last_word(line);
    const auto known = dtype_from_name(dtype);
    if (known) tensors.push_back({std::string(line), *known, sizes_of(sizes == "-" ? "" : sizes)});
  }
  try {
    const format::EncodedHeader encoded = format::encode_header(tensors, metadata, 8);
    return format::parse_header(std::string_view(encoded.bytes).substr(format::kPrefixBytes),
                                encoded.bytes.size() + encoded.data_bytes, "path/header");
  } catch (const Error&) {  // the format's own fuzzer tests invalid headers
    return std::nullopt;
  }
}

/// Refuses reads outside the file, which are the caller's fault.
base::ByteSource checked_source(std::string_view content) {
  return {content.size(), [content](std::span<std::byte> to, std::uint64_t at) {
            require(at <= content.size() && to.size() <= content.size() - at, "a file must be read inside of itself");
            std::ranges::copy(base::as_bytes(content.substr(at, to.size())), to.begin());
          }};
}

/// The files of an input; the input must outlive the object.
class Listing {
 public:
  explicit Listing(std::string_view input) {
    directory_.path = "path";
    while (!input.empty()) {
      std::string_view file = take_up_to(input, "\n#@");
      if (file.starts_with("#@")) file.remove_prefix(2);
      const std::string_view name = take_up_to(file, "\n");
      add(std::string(name), file);
    }
    directory_.manifest = manifest_.data_files;
    directory_.access.list = [this](const std::string& folder) {
      const auto found = folders_.find(folder);
      return found == folders_.end() ? std::vector<interop::FolderEntry>() : found->second;
    };
    directory_.access.open = [this](const std::string& file) {
      const auto found = contents_.find(file);
      if (found == contents_.end()) throw Error(ErrorKind::kNotFound, "path: the file is not there");
      return checked_source(found->second);
    };
  }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

  [[nodiscard]] const Directory& directory() const { return directory_; }

  /// The input of outline(): headers without tensors, and summaries that have the facts about the tensors.
  void outline_of(interop::FileSummaries& files, interop::IndexSummaries& indexes, Directory& out) const {
    out = directory_;
    for (auto& [name, header] : out.safetensors) {
      files[name] = interop::summary_of(header);
      header.tensors = {};
    }
    for (const auto& [name, text] : directory_.json) {
      if (!interop::set_of_index(name)) continue;
      format::HfIndex index = format::parse_hf_index(text, "path/" + name);
      indexes[name] = interop::summary_of(index);
      index.tensors.clear();
      out.indexes[name] = std::move(index);
      out.json.erase(name);
    }
  }

 private:
  void add(std::string name, std::string_view content) {
    if (name == "!alone") {
      directory_.alone = true;
      return;
    }
    const bool is_elsewhere = take_mark("2:", name);
    const bool is_outlined = take_mark("o:", name);
    const std::size_t slash = name.find('/');
    if (slash != std::string::npos) return add_below(name, slash, content);
    if (is_elsewhere) {
      directory_.parts = {"path", "path2"};
      directory_.part_of[name] = "path2";
    }
    if (interop::is_data_name(name)) {
      if (auto header = header_of(content)) directory_.safetensors[name] = std::move(*header);
      return;
    }
    if (name == "cairn.json") return set_manifest(content);
    if (interop::most_text_bytes(name) > 0) {
      directory_.json[name] = content;
      return;
    }
    directory_.others[name] = content.size();
    contents_[name] = content;
    if (is_outlined && interop::is_pickle_name(name)) directory_.outlined.insert(name);
  }

  static bool take_mark(std::string_view mark, std::string& name) {
    if (!name.starts_with(mark)) return false;
    name.erase(0, mark.size());
    return true;
  }

  void add_below(const std::string& name, std::size_t slash, std::string_view content) {
    const std::string folder = name.substr(0, slash);
    auto& entries = folders_[folder];
    if (std::ranges::find(directory_.folders, folder) == directory_.folders.end()) directory_.folders.push_back(folder);
    if (slash + 1 == name.size()) return;
    entries.push_back({name, content.size(), false});
    contents_[name] = content;
  }

  void set_manifest(std::string_view content) {
    try {
      manifest_ = format::parse_manifest(content, "path/cairn.json");
    } catch (const Error&) {  // the format's own fuzzer tests invalid manifests
    }
  }

  Directory directory_;
  format::Manifest manifest_;
  std::map<std::string, std::string_view> contents_;
  std::map<std::string, std::vector<interop::FolderEntry>> folders_;
};

/// The refusal of recognise() or a dialect for an invalid directory.
std::optional<std::string> refusal_by(const std::function<void()>& look) {
  return refusal_of(look, {ErrorKind::kFormat, ErrorKind::kNotFound});
}

void check_told(const interop::About& about) {
  for (const auto& [key, text] : about.values) {
    if (key == "trainer_state") {  // JSON of the trainer, or of its pickle
      (void)base::Json::parse(text, key, {.dialect = base::JsonDialect::kPython});
      require(base::compact_json(text) == text, "a trainer's JSON must have no blanks");
    } else {
      require(base::Json::parse(text, key).dump() == text, "what is told of must be JSON as Cairn writes it");
    }
  }
  if (const auto state = about.values.find(interop::kPaddleValue); state != about.values.end()) {
    require(interop::parse_paddle_state(state->second).has_value(), "the state of PaddlePaddle must be readable");
  }
}

/// Describes the directory with each dialect that accepts it.
void describe_by_each(const Directory& directory) {
  for (const interop::Dialect* dialect : interop::dialects()) {
    refusal_by([&] {
      interop::Reading reading(directory);
      if (!dialect->recognises(reading)) return;
      interop::Recognised described;
      refusal_by([&] { dialect->describe(reading, described); });
      interop::About about;
      dialect->tell(reading, about);
      check_told(about);
    });
  }
}

/// A description and an outline of the same directory must agree.
void compare(const interop::Recognised& whole, const interop::Outline& outline) {
  require(whole.about == outline.about, "an outline must tell the same");
  require(whole.metadata == outline.metadata && whole.disputed_metadata == outline.disputed_metadata,
          "an outline must have the same metadata");
  require(whole.carried == outline.carried, "an outline must carry the same files");
  require(whole.warnings == outline.warnings, "an outline must warn of the same");
  for (const format::PlacedTensor& tensor : whole.tensors) {
    require(!tensor.in_parts, "an outline must be of whole tensors");
    const std::string& file = whole.files.at(tensor.file).name;
    require(outline.section_of_file.at(file) == tensor.section, "an outline must know the section of a file");
  }
}

}  // namespace

void feed_all_parsers(std::span<const std::byte> input) {
  const Listing listing({reinterpret_cast<const char*>(input.data()), input.size()});
  std::optional<interop::Recognised> whole;
  const auto refusal = refusal_by([&] { whole = interop::recognise(listing.directory()); });
  // The places of missing files come at the end of the message.
  const bool has_place = !refusal || refusal->starts_with("path") || refusal->ends_with("; looked in path and path2");
  require(has_place, "a message must begin with the place");
  if (whole) {
    check_boxes(*whole);
    check_volumes(*whole);
    check_lists(*whole);
    check_told(whole->about);
  }
  describe_by_each(listing.directory());
  refusal_by([&] {
    Directory directory;
    interop::FileSummaries files;
    interop::IndexSummaries indexes;
    listing.outline_of(files, indexes, directory);
    const auto outline = interop::outline(directory, files, indexes);
    if (outline && whole) compare(*whole, *outline);
  });
}

}  // namespace cairn::fuzz
