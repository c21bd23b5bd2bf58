// `cairn.json`: what a checkpoint is. Written last; a directory without it is not a checkpoint of Cairn's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/dtype.hpp"
#include "cairn/error.hpp"

namespace cairn::format {

inline constexpr const char* kManifestFile = "cairn.json";

inline constexpr int kManifestVersion = 2;

struct ManifestFile {
  std::string name;
  std::string section;  ///< empty for carried and internal files
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;  ///< of the whole file
};

/// A life of the run from which a checkpoint descends, and its save from which the next one went on.
struct Life {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;     ///< of that save
  std::uint64_t counter = 0;  ///< of that save; 0: not known, and the step stands for it

  friend bool operator==(const Life&, const Life&) = default;
};

struct Manifest {
  int version = kManifestVersion;
  std::string tool;  ///< "cairn 0.1.0"
  std::uint64_t step = 0;
  bool has_step = false;
  std::string run_id;
  std::string form;              ///< whose files it has, a word of `cairn convert --to`; empty: not said
  std::string parent;            ///< directory name of the checkpoint that this one continues, or empty
  std::uint64_t epoch = 0;       ///< of the life that saved it; 0: of version 1, or saved outside of a root
  std::uint64_t counter = 0;     ///< counts the saves of that life from 1
  std::vector<Life> lineage;     ///< the lives before it, oldest first; epochs and steps as in FORMAT.md
  std::string layout;            ///< of the ranks that saved it, short form or JSON text; informative
  std::uint64_t ranks = 0;       ///< that saved it; 0: not known
  std::uint64_t rank_blobs = 0;  ///< how many ranks' blobs section rank_state has; 0: none, or not said
  std::uint64_t block_bytes = 0;
  std::vector<ManifestFile> data_files;     ///< in block-table order
  std::vector<ManifestFile> carried_files;  ///< config.json, tokenizer, rank blobs ...
  std::uint32_t blocks_crc32c = 0;          ///< of cairn.blocks
  std::map<std::string, std::string> user_metadata;
  base::Json quantisation = base::Json::object();  ///< section -> codec name; empty: none
  base::Json extra = base::Json::object();         ///< keys of other versions, kept on rewrite
};

/// Deterministic text (keys sorted, indent 2, newline at the end) of version kManifestVersion, whatever version was
/// read, with its own checksum. No time stamps and no rank-dependent order.
std::string encode_manifest(const Manifest& manifest);

/// What parse_manifest() throws for a manifest of a version or kind that only a newer Cairn can read: kFormat, or
/// kIntegrity where the text does not have its own checksum, and so may say anything.
class NewerManifest : public Error {
 public:
  explicit NewerManifest(const Error& error) : Error(error) {}
};

/// Throws Error(kFormat) naming `path` and the key: not JSON, a missing or mistyped key, an unsafe file name;
/// NewerManifest for a newer version or kind than this build reads; Error(kIntegrity) when the text does not have its
/// own checksum.
Manifest parse_manifest(std::string_view json, std::string_view path);

// The manifest's key "rebuilt": sections of which tensors were left out because another section has them in another
// dtype.
//
// A reader makes each tensor of `from` that `section` lacks, under the same name, in `dtype`. FORMAT.md has the fields.

inline constexpr const char* kRebuiltKey = "rebuilt";
inline constexpr std::string_view kModelSection = "model";
inline constexpr std::string_view kMasterWeightsSection = "master_weights";

/// kMasterWeightsSection in F32 from kModelSection, or kModelSection in BF16 or F16 from kMasterWeightsSection.
struct Rebuilt {
  std::string_view section;
  std::string_view from;
  DType dtype = DType::kF32;

  friend bool operator==(const Rebuilt&, const Rebuilt&) = default;
};

/// Of a manifest's unknown keys; nothing where "rebuilt" is not among them. Throws Error(kFormat) naming `path` for
/// anything but those rules.
std::vector<Rebuilt> parse_rebuilt(const base::Json& extra, std::string_view path);

}  // namespace cairn::format
