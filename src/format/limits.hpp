// Size limits of the parts of a checkpoint, for writers and readers. A reader refuses larger parts before it allocates
// memory, so a writer must never write them. FORMAT.md, "Limits", has the reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::format::limits {

inline constexpr std::uint64_t kManifestBytes = 256ULL << 20;  ///< bytes of cairn.json
inline constexpr std::uint64_t kIndexBytes = 256ULL << 20;     ///< an index, or any other JSON file that is read
inline constexpr std::uint64_t kBlockTableBytes = 1ULL << 30;  ///< bytes of cairn.blocks
inline constexpr std::uint64_t kBlockBytes = 1ULL << 30;       ///< a block, which a reader holds in memory
inline constexpr std::uint64_t kHeaderBytes = 100'000'000;     ///< header of a safetensors file, as in the reference
inline constexpr std::uint64_t kAlignBytes = 64ULL << 20;      ///< alignment of data; below kHeaderBytes, since headers
                                                               ///< are padded to it
inline constexpr std::size_t kSectionBytes = 64;               ///< name of a section, the start of its files' names
inline constexpr std::size_t kFileNameBytes = 255;             ///< name of a file: the limit of most file systems
inline constexpr std::size_t kRunIdBytes = 1024;               ///< name of a run
inline constexpr std::uint64_t kEpoch = 1ULL << 53;            ///< epoch of a root: exact in every JSON reader
inline constexpr std::size_t kDimensions = 8;                  ///< dimensions of a tensor that is saved or loaded in
                                                               ///< boxes
inline constexpr std::size_t kHeaderDimensions = 64;           ///< dimensions of a tensor in a header
inline constexpr std::uint64_t kRootStateBytes = 1ULL << 20;   ///< bytes of .cairn/state.json
inline constexpr std::uint64_t kLatestFileBytes = 64;          ///< bytes of latest_checkpointed_iteration.txt
inline constexpr std::uint64_t kRunLogBytes = 64ULL << 20;     ///< end of cairn.log.jsonl that a reader takes

}  // namespace cairn::format::limits
