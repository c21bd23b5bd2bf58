// How all ranks open a directory of whole tensors: the work of one rank between two messages.
//
// Numbered as they follow each other; open_together.cpp carries the messages and looks at the directory. Rank 0 says what
// there is; each header and index is read by one rank; rank 0 judges from summaries; the tensors are put in order by
// stretches, whose borders a sample decides, as those of a save are (planning/catalog_steps.hpp). Rank-local, and pure but
// for the reading, which the caller does: `cairn plan` runs them for any number of ranks in one process.
#pragma once

#include <cstdint>
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
#include "interop/reading.hpp"
#include "opening/open.hpp"

namespace cairn::opening {

/// What a rank knows of the directory, tensors apart.
struct Listing {
  OpenCheckpoint opened;  ///< each step adds to it
  std::vector<std::string> indexes;
  std::vector<std::string> sections;   ///< of each file; empty where it has no tensors
  std::vector<std::uint32_t> digests;  ///< on rank 0: of each file, by its blocks (file_digest_in)
};

/// This rank's part of the data files: those of its number, and so on in steps of the number of ranks.
struct HeaderShare {
  int rank = 0;
  int ranks = 1;
  std::vector<format::SafetensorsHeader> headers;
  std::vector<format::PlacedTensor> tensors;  ///< of all of them, in catalog order; they lead into headers and listing
};

/// How files are read, by their names.
struct ReadFiles {
  std::function<format::SafetensorsHeader(const OpenCheckpoint& opened, const std::string& file)> header;
  std::function<std::string(const OpenCheckpoint& opened, const std::string& index)> index;
};

/// 1. Rank 0: what there is to read, for all ranks. `files`: data files, by name. The block table of `opened` travels
/// beside it, as it is.
base::Bytes announce(const OpenCheckpoint& opened, const std::vector<std::string>& files,
                     const std::vector<std::string>& indexes);

/// 2. The same, with sizes and tensors to come.
Listing take_announced(std::span<const std::byte> announced, base::Bytes blocks);

/// 3. Reads this rank's headers and indexes. Returns their summaries, for rank 0.
base::Bytes read_share(const Listing& listing, const ReadFiles& read, HeaderShare& share);

/// 4. Rank 0: what the directory is; nothing where it must be read as a whole. Puts what the ranks have read into
/// `listing` and `directory`, which has all that is not a header or an index.
std::optional<interop::Outline> judge(Listing& listing, interop::Directory& directory, const comm::Messages& summaries);

/// 5. Rank 0: the same for all ranks.
base::Bytes encode_judged(const Listing& listing, const interop::Outline& outline);

/// 6. All that is known of the directory but for its tensors.
void take_judged(std::span<const std::byte> judged, Listing& listing);

/// 7. Puts this rank's tensors in order. Returns the names of some, for all ranks; of few ranks only, so that all samples
/// together stay few.
base::Bytes place(const Listing& listing, HeaderShare& share);

/// 8. This rank's tensors, each to the rank whose stretch of the catalog it lies in; they are freed here. `samples`: by
/// rank. Each rank joins what it gets to its stretch by plan::merge_runs, and all stretches are the catalog.
comm::Messages spread(HeaderShare& share, const comm::Messages& samples);

}  // namespace cairn::opening
