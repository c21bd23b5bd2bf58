// A state in one HDF5 file: written by all ranks, read by any number of them in any layout, and by h5dump and h5py.
//
// For staging, and as a witness: what stage() wrote is read back through HDF5 itself, by none of the code that loads a
// checkpoint. A staging file has no block checksums and no steps; checkpoint.hpp is for what must last. The form of the
// file is in src/hdf5/STAGING.md.
#pragma once

#include <mpi.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"

namespace cairn {

/// Collective. Writes `file`, whose name ends in .h5 or .hdf5, durable when it returns; it appears whole or not at all.
/// Of the options it takes engine, align_bytes, block_bytes (of the cut between ranks), mode, group, limits,
/// run_id, overwrite, overwrite_foreign and progress. Throws as Checkpointer::save, and kUsage in a build without HDF5.
Report stage(MPI_Comm communicator, const std::filesystem::path& file, std::span<const Source> state,
             const Options& options = {}, const std::map<std::string, std::string>& metadata = {});

/// Collective. Reads every target, in any layout, from a staging file, a checkpoint directory of any dialect or a
/// single safetensors file. Of a staging file each rank reads what it wants, by hyperslabs, in bounded pieces. Throws
/// as Checkpointer::load; kFormat for a file that is damaged or not Cairn's.
Report load_from(MPI_Comm communicator, const std::filesystem::path& path, std::span<const Target> targets,
                 const Options& options = {}, const LoadOptions& load_options = {});

/// Collective. The same of a checkpoint whose files are in several directories, as machines leave them that save to their
/// own disks. Together they must be complete: kNotFound names what is missing, and where it was looked for. A file that two
/// directories have must be the same in both by size and header; else kFormat names the two.
///
/// With kAllRanks every rank gives the same list (else kUsage); one path is as load_from() of it. With kEachRank the lists
/// may differ, the directories too where they have one name, and a rank that does not have a directory of its list sees
/// nothing there; rank 0 must see files that are no safetensors, and a checkpoint that Cairn wrote is kUsage.
Report load_from(MPI_Comm communicator, const std::vector<std::filesystem::path>& parts,
                 std::span<const Target> targets, const Options& options = {}, const LoadOptions& load_options = {},
                 Sight sight = Sight::kAllRanks);

}  // namespace cairn
