// Checks that a save makes on the state, and their consequences.
//
// All checks finish before the commit: a save that one of them refuses throws kState on all ranks, leaves no files, and
// the previous checkpoint stays the newest. Warnings are in Report::warnings and the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// The part of the replicas (equal boxes of a tensor on several ranks) that a save compares. save_async() compares
/// before it returns, except for moments in host memory that are coded in the background. Bytes are compared: NaNs with
/// the same bits are equal, 0.0 and -0.0 are not. Tensors that a save leaves out (Quantisation::remove_master_weight)
/// are not compared; moments that are coded are compared before coding.
enum class ReplicaCheck {
  kOff,
  /// Boxes of up to 64 KiB are compared whole, and larger ones at 64 places of 64 bytes, which a hash of save, tensor
  /// and box spreads evenly: every save compares different places. If that exceeds both 16 MiB and a 64th of a rank's
  /// replicas, as with very many small tensors, each box has fewer places, but at least one.
  kSample,
  kAll,  ///< every byte: one pass over the memory of all replicas
};

/// The reaction of a save to replicas that differ. The message names the first such tensor, its ranks, and the first
/// element that differs among those compared.
enum class ReplicasDiffer {
  /// kState if the checkpoint would take bytes of the tensor from several ranks: a mixture that no rank had. A warning
  /// if all bytes of the tensor come from one rank.
  kRefuseMixture,
  kRefuse,  ///< kState
  kWarn,    ///< a warning
};

/// The reaction of a save to sections in which no byte differs from the previous step, which this Checkpointer saved or
/// loaded last. A section is skipped if it holds no tensors, if Options::frozen selects all of them, if the step
/// numbers are equal, or if there is nothing to compare with (no previous step, or different block_bytes). The ranks'
/// blobs are not a section.
enum class StaleSections {
  kIgnore,  ///< still reported in Report::unchanged
  kWarn,    ///< one warning that names all such sections
  kRefuse,  ///< kState
};

/// The reaction of a save to values that are NaN or infinite, in floats of 8 bits and more, and in C64, whose two parts
/// count as separate values. The count is taken over the bytes to be written, while checksums are computed. For coded
/// moments, only scales are examined, since the codecs themselves refuse such moments (src/quant/README.md). stage()
/// compares replicas but makes no other check.
enum class NonFinite {
  kIgnore,  ///< does not count
  kCount,   ///< counts, in Report::non_finite
  kWarn,    ///< counts, and warns with the names and counts of the first tensors
  kRefuse,  ///< counts, and throws kState with these names and counts
};

struct Checks {
  ReplicaCheck replicas = ReplicaCheck::kSample;
  ReplicasDiffer replicas_differ = ReplicasDiffer::kRefuseMixture;
  StaleSections stale = StaleSections::kWarn;
  NonFinite non_finite = NonFinite::kIgnore;
};

/// The part of a section's files that is unchanged since the previous step (Report::unchanged): blocks of
/// FileOptions::block_bytes, headers included, with the same checksum at the same place in a file of the same name and
/// size.
struct SectionChange {
  std::string section;
  std::uint64_t bytes = 0;  ///< bytes of all data files of the section
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

/// Counts of all values that are NaN or infinite in a save (Report::non_finite).
struct NonFiniteValues {
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t tensors = 0;           ///< number of tensors with at least one such value
  std::vector<NonFiniteTensor> first;  ///< up to 8 tensors, by section and name; on all ranks
};

}  // namespace cairn
