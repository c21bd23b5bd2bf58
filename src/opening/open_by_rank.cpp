// Opens a checkpoint of which each rank sees some of the files, because machines saved to their local disks.
//
// 1. Every rank lists the files that it sees, reads headers and JSON files, and sends names, sizes and checksums to
//    rank 0, which compares files of the same name.
// 2. Rank 0 chooses a reader for each file among the ranks that see it: the lowest rank or, for data files, and pickles
//    that rank 0 does not see, the one with the fewest bytes so far. Readers send headers, JSON, and parts of pickles.
// 3. Rank 0 describes the checkpoint, as open_here() does for one directory.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/messages.hpp"
#include "format/crc32c.hpp"
#include "format/safetensors.hpp"
#include "interop/file_names.hpp"
#include "opening/open_steps.hpp"
#include "os/file.hpp"
#include "pickle/pickle.hpp"

namespace cairn::opening {
namespace {

namespace fs = std::filesystem;

struct SeenFile {
  fs::path directory;
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;  ///< CRC of a data file's header, a JSON file, or the beginning of a pickle
};
using SeenFiles = std::map<std::string, SeenFile>;

/// The ranges of a pickle that read_pickle() reads: offsets and bytes.
FileText outline_of(const fs::path& path) {
  const os::File file(path, os::OpenMode::kRead);
  base::ByteWriter out;
  const base::ByteSource source{file.size_bytes(), [&](std::span<std::byte> to, std::uint64_t at_bytes) {
                                  file.read_at(to, at_bytes);
                                  out.u64(at_bytes);
                                  out.blob(to);
                                }};
  try {
    (void)pickle::read_pickle(source, path.string());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kFormat) throw;  // rank 0 will find the same fault
  }
  return {std::string(reinterpret_cast<const char*>(out.bytes().data()), out.bytes().size()), file.size_bytes()};
}

/// The ranges of an outline as a source, for reading the pickle on rank 0.
base::ByteSource source_of_outline(const FileText& outline, const std::string& name) {
  base::ByteReader in(base::as_bytes(outline.text));
  const auto pieces = std::make_shared<std::map<std::uint64_t, base::Bytes>>();
  while (!in.done()) {
    const std::uint64_t at_bytes = in.u64();
    (*pieces)[at_bytes] = in.blob();
  }
  return {outline.file_bytes, [pieces, name](std::span<std::byte> to, std::uint64_t at_bytes) {
            const auto piece = pieces->find(at_bytes);
            if (piece == pieces->end() || piece->second.size() < to.size()) {
              throw base::internal_error(fmt::format("'{}': bytes of it were not sent", base::printable(name)));
            }
            std::copy_n(piece->second.begin(), to.size(), to.begin());
          }};
}

/// The files that this rank sees.
struct Seen {
  Listing listing;
  FileTexts texts;  ///< headers and JSON files
};

/// Rank-local. Directories that this rank does not see are left out.
Seen look(Parts& where, Links links) {
  Seen out;
  std::erase_if(where.paths, [](const fs::path& path) { return !os::exists(path); });
  if (where.paths.empty()) return out;
  out.listing = list_parts(where, links, IndexTexts::kRead);
  for (const format::StoredFile& file : out.listing.opened.stored.files) {
    out.texts[file.name] = read_header_text({out.listing.opened.path_of(file.name), os::OpenMode::kRead});
  }
  for (auto& [name, text] : out.listing.found.json) {
    const std::uint64_t size_bytes = text.size();
    out.texts[name] = {std::move(text), size_bytes};
  }
  return out;
}

base::Bytes encode_seen(const Parts& where, const Seen& seen) {
  base::ByteWriter out;
  out.u64(where.paths.size());
  for (const fs::path& path : where.paths) out.text(path.string());
  const auto put = [&](const std::string& name, std::uint64_t size_bytes, const std::string& text) {
    out.text(name);
    out.text(seen.listing.opened.path_of(name).parent_path().string());
    out.u64(size_bytes);
    out.u64(format::crc32c(base::as_bytes(text)));
  };
  for (const auto& [name, text] : seen.texts) put(name, text.file_bytes, text.text);
  for (const auto& [name, size_bytes] : seen.listing.found.others) {
    put(name, size_bytes, interop::is_pickle_name(name) ? beginning_of(seen.listing.opened.path_of(name)) : "");
  }
  return out.take();
}

std::string label(std::size_t rank, const fs::path& path) { return fmt::format("rank {}:{}", rank, path.string()); }

/// Rank 0: the reader of each file, and the files that each rank sees.
struct Readers {
  std::vector<std::string> places;  ///< directories, each with the first rank that sees the same files there
  fs::path first_path;              ///< path of the first of `places`, without the rank
  std::map<std::string, int> of_file;
  std::vector<SeenFiles> seen;  ///< by rank
};

Readers choose_readers(const comm::Messages& messages) {
  Readers out;
  std::map<std::string, std::vector<int>> ranks_of;
  std::set<std::pair<std::string, std::uint32_t>> known_places;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    base::ByteReader in(messages[rank]);
    std::vector<std::string> paths;
    for (std::uint64_t left = in.u64(); left > 0; --left) paths.push_back(in.text());
    // Ranks on one machine see the same files, so only the first of them is named.
    for (const std::string& path : paths) {
      if (!known_places.emplace(path, format::crc32c(messages[rank])).second) continue;
      if (out.places.empty()) out.first_path = path;
      out.places.push_back(label(rank, path));
    }
    SeenFiles& files = out.seen.emplace_back();
    while (!in.done()) {
      const std::string name = in.text();
      SeenFile& file = files[name];
      file.directory = in.text();
      file.size_bytes = in.u64();
      file.crc32c = static_cast<std::uint32_t>(in.u64());
      ranks_of[name].push_back(static_cast<int>(rank));
    }
  }
  std::vector<std::uint64_t> bytes(messages.size(), 0);
  for (const auto& item : ranks_of) {
    const std::string& name = item.first;
    const std::vector<int>& ranks = item.second;
    const auto seen_by = [&](int rank) -> const SeenFile& { return out.seen[static_cast<std::size_t>(rank)].at(name); };
    const SeenFile& first = seen_by(ranks.front());
    const bool is_data = interop::is_data_name(name);
    const bool is_pickle = interop::is_pickle_name(name);
    const bool is_meaning = is_data || is_pickle || interop::set_of_index(name);
    for (const int rank : ranks) {
      const SeenFile& file = seen_by(rank);
      if (!is_meaning || (file.size_bytes == first.size_bytes && file.crc32c == first.crc32c)) continue;
      throw Error(ErrorKind::kFormat,
                  fmt::format("'{}' and '{}' have one name and differ: they are not parts of one checkpoint",
                              label(static_cast<std::size_t>(ranks.front()), first.directory / name),
                              label(static_cast<std::size_t>(rank), file.directory / name)));
    }
    const int reader = *std::ranges::min_element(
        ranks, {}, [&](int rank) { return std::pair(bytes[static_cast<std::size_t>(rank)], rank); });
    // If rank 0 sees a pickle, it reads the whole pickle itself.
    const bool has_data = is_data || (is_pickle && ranks.front() != 0);
    out.of_file[name] = has_data ? reader : ranks.front();
    if (is_data || is_pickle) bytes[static_cast<std::size_t>(out.of_file[name])] += first.size_bytes;
  }
  if (out.places.empty()) throw Error(ErrorKind::kNotFound, "no rank sees a directory of the checkpoint");
  return out;
}

base::Bytes encode_readers(const Readers& readers) {
  base::ByteWriter out;
  for (const auto& [name, rank] : readers.of_file) {
    out.text(name);
    out.u64(static_cast<std::uint64_t>(rank));
  }
  return out.take();
}

/// Header, content or outline of each file that this rank has to read.
base::Bytes texts_of_mine(std::span<const std::byte> readers, int rank, Seen& seen) {
  base::ByteReader in(readers);
  while (!in.done()) {
    const std::string name = in.text();
    if (static_cast<int>(in.u64()) != rank) {
      seen.texts.erase(name);
    } else if (interop::is_pickle_name(name) && rank != 0) {
      seen.texts[name] = outline_of(seen.listing.opened.path_of(name));
    }
  }
  return encode_texts(std::exchange(seen.texts, {}));
}

/// Rank 0: adds the pickles that only other ranks see, from the outlines that it received.
void list_pickles(interop::Directory& directory, const Readers& readers) {
  FileTexts outlines;
  for (const auto& [name, text] : directory.json) {
    if (!interop::is_pickle_name(name)) continue;
    const auto rank = static_cast<std::size_t>(readers.of_file.at(name));
    outlines[name] = {text, readers.seen[rank].at(name).size_bytes};
  }
  for (const auto& [name, outline] : outlines) {
    directory.json.erase(name);
    directory.others[name] = outline.file_bytes;
    directory.outlined.insert(name);
  }
  directory.access.open = [open = directory.access.open, outlines = std::move(outlines)](const std::string& name) {
    const auto found = outlines.find(name);
    if (found != outlines.end()) return source_of_outline(found->second, name);
    return open ? open(name) : base::ByteSource();
  };
}

/// Rank 0: the files of all ranks, as one directory.
OpenCheckpoint describe_all(const Readers& readers, comm::Messages texts, const Parts& mine, const Allowed& allowed,
                            Listing listing) {
  interop::Directory& directory = listing.found;
  directory.path = readers.places.front();
  directory.parts = readers.places;
  directory.json.clear();
  for (const auto& [name, rank] : readers.of_file) {
    const auto reader = static_cast<std::size_t>(rank);
    directory.part_of[name] = label(reader, readers.seen[reader].at(name).directory);
  }
  if (!mine.paths.empty()) directory.access = access_to(mine, allowed.links);
  directory.trusts_index = allowed.trusts_index;
  take_texts(std::move(texts), directory);
  list_pickles(directory, readers);
  if (directory.json.contains(format::kManifestFile)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} has a {}: all ranks must see all of a checkpoint of Cairn",
                            base::printable(directory.part_of.at(format::kManifestFile), 1000), format::kManifestFile));
  }
  if (listing.opened.directory.empty()) listing.opened.directory = readers.first_path;
  OpenCheckpoint opened = describe(std::move(listing), mine);
  for (const format::StoredFile& file : opened.stored.files) {
    const auto reader = readers.of_file.find(file.name);
    opened.reader_of_file.push_back(reader == readers.of_file.end() ? 0 : reader->second);
  }
  // Only rank 0 reads carried files.
  const SeenFiles& on_root = readers.seen.front();
  std::erase_if(opened.carried, [&](const std::string& name) { return !on_root.contains(name); });
  for (const auto& [name, rank] : readers.of_file) {
    if (on_root.contains(name) || interop::is_data_name(name) || interop::set_of_index(name)) continue;
    if (std::ranges::find(opened.stored.files, name, &format::StoredFile::name) != opened.stored.files.end()) continue;
    opened.warnings.push_back(
        fmt::format("{} is left behind: only rank {} sees it, and not rank 0", base::printable(name), rank));
  }
  return opened;
}

}  // namespace

OpenCheckpoint open_by_rank(comm::Communicator& communicator, Parts where, const Allowed& allowed) {
  constexpr const char* kStep = "open checkpoint";
  Seen seen;
  base::Bytes bytes;
  comm::agree(communicator, kStep, [&] {
    seen = look(where, allowed.links);
    bytes = encode_seen(where, seen);
  });
  const comm::Messages all_seen = communicator.gather(bytes, 0);
  Readers readers;
  comm::agree_on_root(communicator, kStep, 0, [&] {
    readers = choose_readers(all_seen);
    bytes = encode_readers(readers);
  });
  communicator.share(bytes, 0);
  comm::agree(communicator, kStep, [&] { bytes = texts_of_mine(bytes, communicator.rank(), seen); });
  comm::Messages texts = communicator.gather(bytes, 0);
  OpenCheckpoint opened;
  open_on_root(communicator, opened,
               [&] { opened = describe_all(readers, std::move(texts), where, allowed, std::move(seen.listing)); });
  if (communicator.rank() == 0) return opened;
  OpenCheckpoint& here = seen.listing.opened;
  if (!here.directory.empty()) opened.directory = std::move(here.directory);
  opened.part_of = std::move(here.part_of);
  return opened;
}

}  // namespace cairn::opening
