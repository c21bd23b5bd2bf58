// The steps of opening a directory, for one process alone and for all ranks together.
//
// Rank 0 lists the directory; each header and index is read by one rank; rank 0 recognises the dialect from summaries
// of headers and indexes. If the summaries suffice, the tensors are put in order by stretches, with borders from a
// sample as in a save (planning/catalog_steps.hpp), and no rank has all headers. Otherwise rank 0 gets all headers and
// indexes, and describes the directory like a single process.
//
// The numbered steps are rank-local, and, apart from reading, pure: `cairn plan` runs them for any number of ranks in
// one process. open.cpp sends the messages. open_by_rank.cpp opens a checkpoint if each rank sees only some files.
#pragma once

#include <functional>
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
#include "opening/parts.hpp"

namespace cairn::opening {

/// This rank's part of the data files: numbers rank, rank + ranks, ...
struct HeaderShare {
  int rank = 0;
  int ranks = 1;
  FileTexts texts;  ///< headers and indexes, until rank 0 has judged
  std::vector<format::SafetensorsHeader> headers;
  std::vector<format::PlacedTensor> tensors;  ///< tensors of `headers`, in catalog order; they refer to `headers` and
                                              ///< the listing
};

/// Reads a header or an index.
using ReadText = std::function<FileText(const OpenCheckpoint& opened, const std::string& name)>;

/// 1. Rank 0: the list of files to read, for all ranks. The block table travels separately, unchanged.
base::Bytes announce(const Listing& listing);

/// 2. Reads that list; sizes and tensors follow later.
Listing take_announced(std::span<const std::byte> announced, base::Bytes blocks);

/// 3. Reads this rank's headers and indexes. Returns their summaries, for rank 0.
base::Bytes read_share(const Listing& listing, const ReadText& read, HeaderShare& share);

/// 4. Rank 0: adds the ranks' summaries to its listing. Returns the outline of the directory, or nothing if all headers
/// must be known. Throws for invalid contents.
std::optional<interop::Outline> judge(Listing& listing, const comm::Messages& summaries);

/// 5. Rank 0: the outline, for all ranks.
base::Bytes encode_judged(const Listing& listing, const interop::Outline& outline);

/// 6. Takes everything known of the directory except its tensors.
void take_judged(std::span<const std::byte> judged, Listing& listing);

/// 7. Puts this rank's tensors in order. Returns some of their names, for all ranks. Only some ranks return names, so
/// that the samples stay few.
base::Bytes place(const Listing& listing, HeaderShare& share);

/// 8. Returns, by rank, this rank's tensors for the rank that owns their stretch of the catalog; frees them in `share`.
/// `samples`: by rank. Each rank merges what it receives with plan::merge_runs; all stretches together are the catalog.
comm::Messages spread(HeaderShare& share, const comm::Messages& samples);

/// All headers and indexes that this rank has read, for rank 0, if summaries do not suffice.
base::Bytes encode_texts(const FileTexts& texts);
/// Rank 0: parses headers, and puts all other files into Directory::json. The messages are freed.
void take_texts(comm::Messages messages, interop::Directory& directory);

/// Collective: runs `open` on rank 0, and shares its result in `opened` with all ranks.
void open_on_root(comm::Communicator& communicator, OpenCheckpoint& opened, comm::Work open);

/// Collective: open_checkpoint() of the files that each rank sees.
OpenCheckpoint open_by_rank(comm::Communicator& communicator, Parts where, const Allowed& allowed);

}  // namespace cairn::opening
