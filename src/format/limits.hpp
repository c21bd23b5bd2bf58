// How large what a checkpoint consists of may be: once for those who write it and those who read it. A reader refuses
// more before it takes memory for it, so a writer must never write more. FORMAT.md, "Limits", has the reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::format::limits {

inline constexpr std::uint64_t kManifestBytes = 256ULL << 20;  ///< of cairn.json
inline constexpr std::uint64_t kIndexBytes = 256ULL << 20;     ///< of an index; of any other JSON that is looked into
inline constexpr std::uint64_t kBlockTableBytes = 1ULL << 30;  ///< of cairn.blocks
inline constexpr std::uint64_t kBlockBytes = 1ULL << 30;       ///< of a block, which a reader holds in memory
inline constexpr std::uint64_t kHeaderBytes = 100'000'000;     ///< of a safetensors header, as the reference has it
inline constexpr std::uint64_t kAlignBytes = 64ULL << 20;      ///< below the header's, which is padded to it
inline constexpr std::size_t kSectionBytes = 64;               ///< of a section's name, which begins those of its files
inline constexpr std::size_t kFileNameBytes = 255;             ///< of a file's name: what every file system can hold
inline constexpr std::size_t kRunIdBytes = 1024;               ///< of a run's name
inline constexpr std::uint64_t kEpoch = 1ULL << 53;            ///< of a life of a root: a whole number to every reader
inline constexpr std::size_t kDimensions = 8;                  ///< of a tensor that is saved or loaded by boxes
inline constexpr std::size_t kHeaderDimensions = 64;           ///< of a tensor in a header
inline constexpr std::uint64_t kRootStateBytes = 1ULL << 20;   ///< of .cairn/state.json
inline constexpr std::uint64_t kLatestFileBytes = 64;          ///< of latest_checkpointed_iteration.txt

}  // namespace cairn::format::limits
