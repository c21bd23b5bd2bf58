// Checks that a save makes on the state, and their consequences.
//
// All checks finish before the commit: a save that one of them refuses throws kState on all ranks, leaves no files, and
// the previous checkpoint stays the newest. Warnings are in Report::warnings and the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// How many bytes of its replicas (equal boxes of a tensor on several ranks) a save compares. save_async() compares
/// before it returns, except moments in host memory that are coded in the background. Bytes are compared: NaNs of the
/// same bits are equal, 0.0 and -0.0 are not. Tensors that a save leaves out (Quantisation::remove_master_weight) are
/// not compared; moments that are coded are compared before coding.
enum class ReplicaCheck {
  kOff,
  /// Boxes of up to 64 KiB whole; of larger ones 64 places of 64 bytes, which a hash of save, tensor and box spreads
  /// evenly: different ones with every save. When that exceeds both 16 MiB and a 64th of a rank's replicas, as with
  /// very many small tensors, fewer places of each box, at least one.
  kSample,
  kAll,  ///< every byte: one pass over the memory of all replicas
};

/// What a save does when replicas differ. The message names the first such tensor, its ranks, and the first element
/// that differs among those compared.
enum class ReplicasDiffer {
  /// kState when the checkpoint would take bytes of the tensor from several ranks, and so be a mixture that no rank
  /// had; a warning when all its bytes come from one rank.
  kRefuseMixture,
  kRefuse,  ///< kState
  kWarn,    ///< a warning
};

/// What a save does about sections in which no byte differs from the previous step: the last one that this Checkpointer
/// saved or, since then, loaded. A section is skipped when it holds no tensors, when Options::frozen selects all of
/// them, when the step is the same, or when there is nothing to compare with (no such step, other block_bytes). The
/// ranks' blobs are not a section.
enum class StaleSections {
  kIgnore,  ///< still reported in Report::unchanged
  kWarn,    ///< one warning that names all of them
  kRefuse,  ///< kState
};

/// What a save does about values that are NaN or infinite, in floats of 8 bits and more, and in C64, whose two parts
/// count as a value each. They are counted while checksums are computed, in the bytes that are written: for coded
/// moments in their scales, since codecs refuse such moments themselves (src/quant/README.md). stage() compares
/// replicas and does none of the other checks.
enum class NonFinite {
  kIgnore,  ///< not counted
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

/// The part of a section's files that is unchanged since the previous step (Report::unchanged): blocks of
/// FileOptions::block_bytes, headers included, with the same checksum at the same place of an equally
/// named and sized file.
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

/// Result of a save that counted such values.
struct NonFiniteValues {
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t tensors = 0;           ///< with any such value
  std::vector<NonFiniteTensor> first;  ///< up to 8 of them, by section and name; on all ranks
};

}  // namespace cairn
