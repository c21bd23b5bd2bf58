// From the path that a user gives to the checkpoint that is meant: a root of checkpoints stands for its newest.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::cli {

struct ResolvedPath {
  std::filesystem::path path;      ///< a safetensors file or a checkpoint directory (or what is to be refused by name)
  std::vector<std::string> notes;  ///< one line each: which checkpoint was taken, which newer ones are incomplete
};

/// Rank-local. A directory without safetensors files and without cairn.json, but with checkpoint-<step> directories, is a
/// root: its newest complete checkpoint is taken. Throws Error(kNotFound) when the path does not exist, or when a root
/// holds no complete checkpoint (the message says what is wrong with the newest).
ResolvedPath resolve_here(const std::filesystem::path& path);

/// Collective: resolve_here on rank 0, shared.
ResolvedPath resolve(comm::Communicator& communicator, const std::filesystem::path& path);

}  // namespace cairn::cli
