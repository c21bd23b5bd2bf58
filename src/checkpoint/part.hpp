// Saves of a part of a state: Options::save_only and no_save_optim.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "format/part.hpp"

namespace cairn::checkpoint {

/// Rank-local. The tensors that saves with these options hold; nothing if they hold whole states.
std::optional<format::Part> part_of(const Options& options);

/// Rank-local. Throws Error(kUsage) for a selection of everything, and for a base that is not needed, or that no
/// manifest can name.
void check_part(const Options& options);

/// The sources that a save writes: all that are given, or copies of those that belong to the part.
class PartSources {
 public:
  /// Collective. `given` must outlive the object. Throws Error(kUsage) if the part has no tensor of any rank. Warns in
  /// the log of options that select no tensor.
  PartSources(comm::Communicator& communicator, const Options& options, std::span<const Source> given);
  PartSources(const PartSources&) = delete;
  PartSources& operator=(const PartSources&) = delete;

  [[nodiscard]] std::span<const Source> get() const { return sources_; }

 private:
  std::vector<Source> copies_;
  std::span<const Source> sources_;
};

/// Rank-local. Throws if Options::base names a step that the root lacks, or the step that is saved.
void check_base(const Options& options, const std::filesystem::path& root, std::uint64_t step);

}  // namespace cairn::checkpoint
