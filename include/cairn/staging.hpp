// A state in one HDF5 file: written by all ranks, and read by any number of ranks in any layout, or by h5dump and h5py.
//
// For staging, and as an independent check: HDF5 itself reads the file back, without the code that loads a checkpoint.
// A staging file has no block checksums and no steps; use checkpoint.hpp for data that must last. Format:
// src/hdf5/STAGING.md.
#pragma once

#include <mpi.h>

#include <filesystem>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace cairn {

/// Collective. Writes `file`, whose name ends in .h5 or .hdf5, durable on return; it appears whole or not at all. Uses
/// Options::engine, limits, run_id, overwrite, overwrite_foreign, read_back, waiting, progress, the replica checks, and
/// of `files` align_bytes, block_bytes (to divide the file), mode and group. Throws as save(); kUsage without HDF5.
Report stage(MPI_Comm communicator, const std::filesystem::path& file, std::span<const Source> state,
             const Options& options = {}, const std::map<std::string, std::string>& metadata = {});
inline Report stage(MPI_Comm communicator, const std::filesystem::path& file, std::initializer_list<Source> state,
                    const Options& options = {}, const std::map<std::string, std::string>& metadata = {}) {
  return stage(communicator, file, std::span(state.begin(), state.size()), options, metadata);
}

/// Collective. Reads every target, in any layout, from a staging file, a checkpoint directory of any dialect or a
/// single safetensors file. Each rank reads its part of a staging file directly, by hyperslabs, in bounded pieces.
/// Throws as Checkpointer::load, and kFormat for a staging file that is damaged or that Cairn did not write.
Report load_from(MPI_Comm communicator, const std::filesystem::path& path, std::span<const Target> targets,
                 const Options& options = {}, const LoadOptions& load_options = {});
inline Report load_from(MPI_Comm communicator, const std::filesystem::path& path, std::initializer_list<Target> targets,
                        const Options& options = {}, const LoadOptions& load_options = {}) {
  return load_from(communicator, path, std::span(targets.begin(), targets.size()), options, load_options);
}

/// Collective. load_from() for a checkpoint whose files are in several directories, such as the local disks of several
/// machines. Together the files must be complete: kNotFound names the missing file and the directories that were
/// searched. Copies of a file in two directories must agree in size and header; otherwise kFormat names both.
///
/// With kAllRanks every rank gives the same list (otherwise kUsage); one path is treated as in load_from() above. With
/// kEachRank the lists may differ, and directories of the same name may have different content. A directory that a rank
/// lacks counts as empty on that rank. Rank 0 must see the files that are not safetensors, and a checkpoint that Cairn
/// wrote is refused (kUsage).
Report load_from(MPI_Comm communicator, const std::vector<std::filesystem::path>& parts,
                 std::span<const Target> targets, const Options& options = {}, const LoadOptions& load_options = {},
                 Sight sight = Sight::kAllRanks);
inline Report load_from(MPI_Comm communicator, const std::vector<std::filesystem::path>& parts,
                        std::initializer_list<Target> targets, const Options& options = {},
                        const LoadOptions& load_options = {}, Sight sight = Sight::kAllRanks) {
  return load_from(communicator, parts, std::span(targets.begin(), targets.size()), options, load_options, sight);
}

}  // namespace cairn
