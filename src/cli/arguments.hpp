// Values of command line options: key=value pairs, sizes, layouts, checkpoints, models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/demo_state.hpp"
#include "cairn/error.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::cli {

/// {"key": "value"} from "key=value" words. Throws Error(kUsage) for a word without '=', an empty or a repeated key.
std::map<std::string, std::string> parse_hints(const std::vector<std::string>& words);

// The value of one option. Each function throws Error(kUsage), which does not name the option, for a value that makes
// no sense.

/// Bytes of "5GB" (base::parse_size), at least one.
std::uint64_t size_in(const std::string& text);
/// Bytes, a power of two from 8 to 1 GiB.
std::uint64_t alignment_in(const std::string& text);
/// Bytes of a request of the raw ceilings: a multiple of bench::kRawPageBytes up to 1 GiB.
std::uint64_t request_size_in(const std::string& text);
/// Bytes per second of "100GiB/s" or "100GiB"; a number without a unit is refused.
std::uint64_t rate_in(const std::string& text);
/// Seconds of "1.2", "250ms", "90s", "15m" or "15min", "3h", "2d": from 0 to 1e9.
double seconds_in(const std::string& text);
/// A number of ranks above 0; the largest number for "all".
std::uint64_t sample_in(const std::string& text);
/// Permission bits of "660"; the owner must be able to read and write.
unsigned mode_in(const std::string& text);

/// Collective. The argument itself or, for an "@file" argument, the content of that file, which rank 0 reads.
std::string text_or_file(comm::Communicator& communicator, const std::string& argument);

/// Collective. The layout text that an argument gives: a short form, or "@file.json". The result is valid
/// (shard::Layout::from_text accepts it); throws Error(kUsage) otherwise.
std::string layout_text(comm::Communicator& communicator, const std::string& argument);

// The checkpoint that a path names; a root of checkpoints stands for its newest complete checkpoint.

struct ResolvedPath {
  std::filesystem::path path;      ///< a safetensors file, a checkpoint directory, or a path that opening will refuse
  std::vector<std::string> notes;  ///< one line each: the chosen checkpoint; newer ones, incomplete or void
  std::vector<std::string> more = {};  ///< other directories with files of the checkpoint
  std::vector<std::string> lost = {};  ///< one line each: newer checkpoints that have lost files; also among the notes

  [[nodiscard]] opening::Parts parts(Sight sight = Sight::kAllRanks) const;
};

/// Rank-local. Throws an Error of this kind if the path does not exist, or is not a directory: `before`, the problem,
/// and `hint` unless the problem already names the path that may be meant.
void require_directory(const std::filesystem::path& path, const std::string& hint,
                       ErrorKind kind = ErrorKind::kNotFound, const std::string& before = {});

/// Rank-local. A directory with checkpoint-<step> directories, but without safetensors files, pickles and cairn.json,
/// is a root: its newest complete checkpoint is used. Throws Error(kNotFound) if the path does not exist, or if a root
/// has no complete checkpoint (the message names the problem of the newest). If `more` directories are given, the path
/// is never taken for a root.
ResolvedPath resolve_here(const std::filesystem::path& path, const std::vector<std::string>& more = {});

/// Collective: calls resolve_here on rank 0 and gives all ranks the result.
ResolvedPath resolve(comm::Communicator& communicator, const std::filesystem::path& path,
                     const std::vector<std::string>& more = {});

/// Rank-local. Throws Error(kUsage) if --trust-index has no effect: there is no index next to the checkpoints' data
/// files, or they are Cairn's own, whose manifest names the files.
void refuse_idle_trust(std::initializer_list<const ResolvedPath*> checkpoints);

/// Collective: the state of the model that the argument names, or whose config.json it gives as "@file".
bench::DemoState demo_state(comm::Communicator& communicator, const std::string& argument,
                            std::optional<std::uint64_t> layers);

}  // namespace cairn::cli
