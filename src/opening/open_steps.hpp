// The steps of opening a directory, which one process takes alone and all ranks take together.
//
// Rank 0 lists the directory; each header and index is read by one rank; rank 0 recognises the dialect from summaries
// of them. Where that is enough, the tensors are put in order by stretches, whose borders a sample decides, as those of
// a save are (planning/catalog_steps.hpp), and no rank has all headers. Otherwise rank 0 is sent the texts that were
// read, and describes the directory as one process does.
//
// The numbered steps are rank-local, and pure but for the reading, which the caller does: `cairn plan` runs them for
// any number of ranks in one process. open.cpp carries the messages, open_by_rank.cpp those of ranks that see only some
// of the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "comm/messages.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"
#include "interop/outline.hpp"
#include "opening/open.hpp"

namespace cairn::opening {

/// A small file, or the header of a data file (its JSON), as it stands on disk.
struct FileText {
  std::string text;
  std::uint64_t file_bytes = 0;
};
using FileTexts = std::map<std::string, FileText>;  ///< by name

/// A directory, or several as one, before its tensors are known.
struct Listing {
  OpenCheckpoint opened;               ///< each step adds to it; stored.files are the data files by name
  std::vector<std::string> indexes;    ///< those that are read with the headers
  std::vector<std::string> sections;   ///< of each file; empty where it has no tensors
  std::vector<std::uint32_t> digests;  ///< on rank 0: of each file, by its blocks (file_digest_in)
  interop::Directory found;            ///< on rank 0
  std::vector<std::string> warnings;   ///< of files that are in two directories
  /// Files that are no safetensors and differ between two directories, with what says so: no tensor may be in them.
  std::map<std::string, std::string> differing;
};

/// This rank's part of the data files: those of its number, and so on in steps of the number of ranks.
struct HeaderShare {
  int rank = 0;
  int ranks = 1;
  FileTexts texts;  ///< of headers and indexes, until rank 0 has judged
  std::vector<format::SafetensorsHeader> headers;
  std::vector<format::PlacedTensor> tensors;  ///< of all of them, in catalog order; they lead into headers and listing
};

/// Reads a header or an index.
using ReadText = std::function<FileText(const OpenCheckpoint& opened, const std::string& name)>;

/// 1. Rank 0: what there is to read, for all ranks. The block table travels beside it, as it is.
base::Bytes announce(const Listing& listing);

/// 2. The same, with sizes and tensors to come.
Listing take_announced(std::span<const std::byte> announced, base::Bytes blocks);

/// 3. Reads this rank's headers and indexes. Returns their summaries, for rank 0.
base::Bytes read_share(const Listing& listing, const ReadText& read, HeaderShare& share);

/// 4. Rank 0: adds what the ranks have read to its listing. Returns what the directory is; nothing where all headers
/// must be known. Throws where something is wrong.
std::optional<interop::Outline> judge(Listing& listing, const comm::Messages& summaries);

/// 5. Rank 0: the same for all ranks.
base::Bytes encode_judged(const Listing& listing, const interop::Outline& outline);

/// 6. All that is known of the directory but for its tensors.
void take_judged(std::span<const std::byte> judged, Listing& listing);

/// 7. Puts this rank's tensors in order. Returns the names of some, for all ranks; of few ranks only, so that all
/// samples together stay few.
base::Bytes place(const Listing& listing, HeaderShare& share);

/// 8. This rank's tensors, each to the rank whose stretch of the catalog it lies in; they are freed here. `samples`: by
/// rank. Each rank joins what it gets to its stretch by plan::merge_runs, and all stretches are the catalog.
comm::Messages spread(HeaderShare& share, const comm::Messages& samples);

// Where summaries are not enough.

base::Bytes encode_texts(const FileTexts& texts);
/// Rank 0: parses headers, and puts all other texts into Directory::json. The messages are freed.
void take_texts(comm::Messages messages, interop::Directory& directory);

// Listing.

enum class IndexTexts { kRead, kLeave };

/// Checks links, and what is in two directories. Throws as open_here().
Listing list_parts(const Parts& where, Links links, IndexTexts index_texts);

/// Reads files and folders of the directories for a dialect, when it asks; all paths must be inside, and links as
/// `links` says.
interop::FileAccess access_to(const Parts& where, Links links);

/// Rank-local: recognises what was listed and read, manifest and block table apart. Throws as interop::recognise(), and
/// Error(kFormat) where a tensor is in one of the files that differ.
OpenCheckpoint describe(Listing listing, const Parts& where);

/// What is said of files that are in two directories.
void add_warnings(std::vector<std::string>& warnings, const Listing& listing);

// Reading.

/// The header of a safetensors file; its blocks must have the checksums of `blocks`. Throws Error(kFormat) for another
/// file.
FileText read_header_text(const os::File& file, const std::optional<format::BlockRows>& blocks = {});

/// So many bytes of two files of one name are compared that are neither safetensors nor JSON.
inline constexpr std::uint64_t kComparedBytes = 1ULL << 20;
std::string beginning_of(const std::filesystem::path& path, std::uint64_t most_bytes = kComparedBytes);

/// Checksum of a file, combined from those of its blocks, of which there may be a million; 0 where the table does not
/// have the file, or there is no table.
std::uint32_t file_digest_in(const std::optional<format::BlockRows>& blocks, std::string_view file);

/// Throws as open_here() unless the files are those of the manifest, and those that are carried along are there.
/// `digests`: of each stored file, as file_digest_in().
void check_files(const OpenCheckpoint& checkpoint, std::span<const std::uint32_t> digests, Links links);

// Sharing.

/// Collective: runs `open` on rank 0, and shares what it puts into `opened` with all ranks.
void open_on_root(comm::Communicator& communicator, OpenCheckpoint& opened, comm::Work open);

/// Collective: open_checkpoint() of what each rank sees.
OpenCheckpoint open_by_rank(comm::Communicator& communicator, Parts where, Links links);

}  // namespace cairn::opening
