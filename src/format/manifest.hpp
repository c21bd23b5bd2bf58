// `cairn.json`, the manifest of a checkpoint. Written last: a directory without one is not a checkpoint of Cairn.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/dtype.hpp"
#include "cairn/error.hpp"
#include "format/part.hpp"

namespace cairn::format {

inline constexpr const char* kManifestFile = "cairn.json";

inline constexpr int kManifestVersion = 2;

struct ManifestFile {
  std::string name;
  std::string section;  ///< empty for carried files
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;  ///< checksum of the whole file
  /// Digest of the content, by blocks (FORMAT.md), in 64 lower-case hexadecimal digits; empty: unknown.
  std::string blocks_sha256 = {};
};

/// An epoch from which a checkpoint descends, and the save of that epoch from which the run continued.
struct Life {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;     ///< step of that save
  std::uint64_t counter = 0;  ///< counter of that save; 0: unknown, and the step is used instead

  friend bool operator==(const Life&, const Life&) = default;
};

struct Manifest {
  std::string tool;  ///< "cairn 0.1.0"
  std::uint64_t step = 0;
  bool has_step = false;
  std::string run_id;
  std::string form;              ///< form of the files, as in `cairn convert --to`; empty: unknown
  std::string parent;            ///< directory name of the checkpoint that this one continues, or empty
  std::uint64_t epoch = 0;       ///< epoch of the saver; 0: saved outside a root
  std::uint64_t counter = 0;     ///< counts the saves of that epoch from 1
  std::optional<Part> part;      ///< of a checkpoint that holds only some tensors of a state; empty: a whole state
  std::vector<Life> lineage;     ///< the earlier epochs, oldest first; epochs and steps as in FORMAT.md
  std::string layout;            ///< layout of the saving ranks, short form or JSON text; informative
  std::uint64_t ranks = 0;       ///< number of saving ranks; 0: unknown
  std::uint64_t rank_blobs = 0;  ///< number of blobs in section rank_state; 0: none, or unknown
  std::uint64_t block_bytes = 0;
  std::vector<ManifestFile> data_files;     ///< in block-table order
  std::vector<ManifestFile> carried_files;  ///< config.json, tokenizer, indexes ...
  std::uint32_t blocks_crc32c = 0;          ///< checksum of cairn.blocks
  std::map<std::string, std::string> user_metadata;
  std::map<std::string, double> metrics;           ///< finite numbers of the user, such as the loss
  base::Json quantisation = base::Json::object();  ///< section -> codec name; empty: no quantised section
  base::Json extra = base::Json::object();         ///< other keys: "rebuilt", the engine's, those of other versions
};

/// Deterministic text (keys sorted, indent 2, newline at the end) with its own checksum, always of version
/// kManifestVersion. No time stamps and no rank-dependent order.
std::string encode_manifest(const Manifest& manifest);

/// Thrown by parse_manifest() for a manifest of a version or kind that only a newer Cairn can read: kFormat, or
/// kIntegrity if the text does not match its own checksum and cannot be trusted.
class NewerManifest : public Error {
 public:
  explicit NewerManifest(const Error& error) : Error(error) {}
};

/// Throws Error(kFormat) naming `path` and the key: not JSON, a missing or mistyped key, an unsafe file name;
/// NewerManifest for a version or kind newer than this build reads; Error(kIntegrity) for a wrong checksum.
Manifest parse_manifest(std::string_view json, std::string_view path);

// The manifest's key "rebuilt": sections with omitted tensors that another section has in a different dtype.
//
// A reader makes each tensor of `from` that `section` lacks, under the same name, in `dtype`. FORMAT.md has the fields.

inline constexpr const char* kRebuiltKey = "rebuilt";
inline constexpr std::string_view kModelSection = "model";
inline constexpr std::string_view kRankSection = "rank_state";  ///< section of the ranks' blobs
inline constexpr std::string_view kMasterWeightsSection = "master_weights";

/// kMasterWeightsSection in F32 from kModelSection, or kModelSection in BF16 or F16 from kMasterWeightsSection.
struct Rebuilt {
  std::string_view section;
  std::string_view from;
  DType dtype = DType::kF32;

  friend bool operator==(const Rebuilt&, const Rebuilt&) = default;
};

/// Reads "rebuilt" from a manifest's unknown keys; empty if the key is missing. Throws Error(kFormat) naming `path` for
/// any entry that Rebuilt does not allow.
std::vector<Rebuilt> parse_rebuilt(const base::Json& extra, std::string_view path);

}  // namespace cairn::format
