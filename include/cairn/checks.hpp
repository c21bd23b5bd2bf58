// What a save looks for in the state that it is given, and what it does about it.
//
// All of it is found before the commit: a save that one of these checks refuses throws kState on all ranks, leaves
// nothing, and the checkpoint before it stays the newest. Warnings are in Report::warnings and the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// How much of its replicas (equal boxes of a tensor on several ranks) a save compares. save_async() compares before it
/// returns, but for moments in host memory that are coded behind the program. Compared are bytes: NaNs of the same bits
/// are the same, 0.0 and -0.0 are not. What a save leaves out (Quantisation::remove_master_weight) is not looked at;
/// moments that are coded are, as they are before it.
enum class ReplicaCheck {
  kOff,
  /// Boxes of up to 64 KiB whole; of larger ones 64 places of 64 bytes that a hash of save, tensor and box spreads
  /// evenly over it: other ones with every save. Where that would be more than 16 MiB and more than a 64th of the
  /// replicas of a rank, as with very many small tensors, fewer places of each box, at least one.
  kSample,
  kAll,  ///< every byte: one pass over the memory of all replicas
};

/// What a save does when replicas differ. The message names the first such tensor, its ranks, and the first element
/// that differs among those compared.
enum class ReplicasDiffer {
  /// kState where the checkpoint would take bytes of the tensor from several ranks, and so be a mixture that no rank
  /// had; a warning where all its bytes are one rank's.
  kRefuseMixture,
  kRefuse,  ///< kState
  kWarn,    ///< a warning
};

/// What a save does about sections of which not a byte differs from the step before: the last one that this
/// Checkpointer saved, or loaded since. A section is not looked at when it holds no tensors, when Options::frozen
/// selects all that it has, when the step is the same, or when there is nothing to compare with (no such step, other
/// block_bytes). The ranks' blobs are no section.
enum class StaleSections {
  kIgnore,  ///< Report::unchanged says it nevertheless
  kWarn,    ///< one warning that names all of them
  kRefuse,  ///< kState
};

/// What a save does about values that are NaN or infinite: of floats of 8 bits and more, and of C64, whose two parts
/// are a value each. They are counted where checksums are made, in what is written: of moments that are coded in the
/// scales, since codecs refuse such moments by themselves (src/quant/README.md). stage() compares replicas, and does
/// nothing else of this header.
enum class NonFinite {
  kIgnore,  ///< not looked for
  kCount,   ///< in Report::non_finite
  kWarn,    ///< and a warning that names the first tensors, with counts
  kRefuse,  ///< kState that names them
};

struct Checks {
  ReplicaCheck replicas = ReplicaCheck::kSample;
  ReplicasDiffer replicas_differ = ReplicasDiffer::kRefuseMixture;
  StaleSections stale = StaleSections::kWarn;
  NonFinite non_finite = NonFinite::kIgnore;
};

/// How much of a section's files a save found as it was in the step before (Report::unchanged): blocks of
/// FileOptions::block_bytes with the same checksum, at the same place of a file of the same name and size. Headers
/// count.
struct SectionChange {
  std::string section;
  std::uint64_t bytes = 0;  ///< of all its data files
  std::uint64_t blocks = 0;
  std::uint64_t unchanged_bytes = 0;
  std::uint64_t unchanged_blocks = 0;
};

/// A tensor with values that are not finite, over all ranks.
struct NonFiniteTensor {
  std::string section;
  std::string name;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
};

/// Of a save that looked for them.
struct NonFiniteValues {
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t tensors = 0;           ///< that have any
  std::vector<NonFiniteTensor> first;  ///< up to 8 of them, by section and name; on all ranks
};

}  // namespace cairn
