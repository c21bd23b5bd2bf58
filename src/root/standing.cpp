#include "root/standing.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/text.hpp"
#include "format/blocks.hpp"
#include "format/limits.hpp"
#include "os/errno_class.hpp"
#include "os/file.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

using os::shown;

Standing of(Condition condition, const Error& error) { return {condition, error}; }

/// The target of a dangling link may be on a file system that is not mounted.
void refuse_link_to_nowhere(const fs::path& path) {
  if (os::exists(path) || !os::is_name_taken(path)) return;
  throw Error(ErrorKind::kIo,
              fmt::format("{} is a link to something that is not there now; mount that, or remove the link",
                          base::printable(path.filename().string())),
              {ENODEV, path.native()});
}

/// Sets condition, error, bytes and files of `standing`; the other members are already set.
void look_at_files(const fs::path& directory, const format::Manifest& manifest, Standing& standing) {
  const auto incomplete = [&](const fs::path& path, const std::string& what) {
    standing.condition = Condition::kIncomplete;
    standing.error = Error(ErrorKind::kIntegrity, what, {0, path.native()});
  };
  for (const auto* files : {&manifest.data_files, &manifest.carried_files}) {
    for (const auto& file : *files) {
      const auto path = directory / file.name;
      refuse_link_to_nowhere(path);
      if (!os::exists(path)) return incomplete(path, fmt::format("{} is missing", base::printable(file.name)));
      const std::uint64_t size = os::file_size(path);
      if (size == file.size_bytes) continue;
      return incomplete(path, fmt::format("{} has {} bytes, {} names {}", base::printable(file.name), size,
                                          format::kManifestFile, file.size_bytes));
    }
  }
  refuse_link_to_nowhere(directory / format::kBlocksFile);
  if (!os::exists(directory / format::kBlocksFile)) {  // the manifest names only its checksum
    return incomplete(directory / format::kBlocksFile, fmt::format("{} is missing", format::kBlocksFile));
  }
  standing.condition = Condition::kWhole;
  for (const auto& file : manifest.data_files) standing.bytes += file.size_bytes;
  standing.files = manifest.data_files.size();
}

Error lost_manifest(const fs::path& directory) {
  return {ErrorKind::kIntegrity,
          fmt::format("{} is missing, and {} is there", format::kManifestFile, format::kBlocksFile),
          {0, (directory / format::kManifestFile).native()}};
}

Standing look(const fs::path& directory) {
  const auto path = directory / format::kManifestFile;
  refuse_link_to_nowhere(directory);
  refuse_link_to_nowhere(path);
  if (!os::exists(path)) {
    if (os::exists(directory / format::kBlocksFile)) return of(Condition::kDamaged, lost_manifest(directory));
    return of(Condition::kForeign,
              Error(ErrorKind::kNotFound, fmt::format("no {}", format::kManifestFile), {0, path.native()}));
  }
  Standing standing{Condition::kUnreadable};
  try {
    const auto manifest = format::parse_manifest(os::read_text(path, format::limits::kManifestBytes), path.string());
    standing.has_manifest = true;
    standing.generation = {manifest.epoch, manifest.counter};
    standing.lineage = manifest.lineage;
    standing.run_id = manifest.run_id;
    standing.metrics = manifest.metrics;
    standing.part = manifest.part;
    look_at_files(directory, manifest, standing);
  } catch (const format::NewerManifest& error) {
    return of(Condition::kNewer, error);
  } catch (const Error& error) {
    standing.error = error;
    if (error.system_error() == 0) standing.condition = Condition::kDamaged;
  }
  return standing;
}

Standing look_at_stage(const fs::path& file, const std::function<void(const fs::path&)>& open) {
  refuse_link_to_nowhere(file);
  try {
    open(file);
  } catch (const format::NewerManifest& error) {
    return of(Condition::kNewer, error);
  } catch (const Error& error) {
    if (error.system_error() != 0) throw;
    return of(Condition::kForeign, error);
  }
  return {Condition::kWhole};
}

/// Turns thrown errors, except shortages, into kUnreadable: errors of the system say nothing about the content.
Standing without_errors(const fs::path& path, const std::function<Standing(const fs::path&)>& look) {
  Standing standing;
  try {
    standing = look(path);
  } catch (const Error& error) {
    standing = of(Condition::kUnreadable, error);
  }
  if (standing.error && os::is_shortage(*standing.error)) throw Error(*standing.error);
  return standing;
}

/// Whether the saving run itself abandoned the checkpoint. A checkpoint from elsewhere or of another run was put there
/// on purpose.
bool was_left(const Descent& descent, std::uint64_t step, const Standing& standing) {
  const bool is_own = standing.run_id.empty() || descent.run_id.empty() || standing.run_id == descent.run_id;
  return standing.generation.epoch != 0 && is_own && why_void(descent, step, standing.generation);
}

Fate fate_of(const fs::path& path, const Standing& standing, const Replacing& may) {
  const auto refuse = [&](const std::string& what) -> Fate {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' {}", shown(path), what), {0, path.native()});
  };
  const char* const foreign_may_go = "; move it away, or allow it to be replaced (Options::overwrite_foreign)";
  switch (standing.condition) {
    case Condition::kUnreadable:
      throw Error(ErrorKind::kIo,
                  fmt::format("'{}' exists, and cannot be read now: {}; nothing was replaced", shown(path),
                              standing.error->what()),
                  {standing.error->system_error(), path.native()});
    case Condition::kForeign:
      if (may.overwrite_foreign) return Fate::kReplaced;
      return refuse(fmt::format("exists, and is not Cairn's ({}){}", standing.error->what(), foreign_may_go));
    case Condition::kNewer:
      if (may.overwrite_foreign) return Fate::kReplaced;
      return refuse(fmt::format("exists, and is a newer Cairn's: {}{}", standing.error->what(), foreign_may_go));
    case Condition::kDamaged:
      if (may.overwrite || may.overwrite_foreign) return Fate::kReplaced;
      if (may.is_passed_over) return Fate::kSetAside;
      return refuse(
          fmt::format("exists, and is damaged: {}; move it away, or allow it to be replaced (Options::overwrite)",
                      standing.error->what()));
    case Condition::kIncomplete:
    case Condition::kWhole: break;
  }
  if (may.overwrite || may.overwrite_foreign) return Fate::kReplaced;
  const bool may_take_place = may.descent && standing.part.has_value() == may.is_part;
  if (may_take_place && standing.condition == Condition::kIncomplete) return Fate::kReplaced;
  if (may_take_place && was_left(*may.descent, may.step, standing)) return Fate::kAbandoned;
  return refuse(
      may.descent
          ? "exists already; save another step, or allow it to be replaced (Options::overwrite, or --overwrite on the "
            "command line), or go on from it by load_latest()"
          : "exists already; choose another name, or remove it; a program can have it replaced (Options::overwrite)");
}

}  // namespace

Standing look_at(const fs::path& directory) { return without_errors(directory, look); }

bool may_be_whole(const Standing& standing) {
  if (standing.condition == Condition::kNewer) return true;
  return standing.condition == Condition::kUnreadable && os::class_of(*standing.error) != os::ErrnoClass::kOfFile;
}

void refuse_lost_manifest(const fs::path& directory) {
  if (os::exists(directory / format::kManifestFile) || !os::exists(directory / format::kBlocksFile)) return;
  const Error error = lost_manifest(directory);
  throw error.with_message(fmt::format(
      "'{}': {}: nothing tells whether the bytes are those that were saved; to read them all the same, move {} away",
      shown(directory), error.what(), format::kBlocksFile));
}

std::optional<Generation> generation_of(const fs::path& directory) {
  const Standing standing = look_at(directory);
  if (standing.condition != Condition::kWhole) return std::nullopt;
  return standing.generation;
}

std::optional<std::string> why_void(const Descent& descent, std::uint64_t step, const Generation& generation) {
  const std::uint64_t epoch = generation.epoch;
  if (epoch == descent.epoch || descent.lineage.empty()) return std::nullopt;
  const auto life = std::ranges::find(descent.lineage, epoch, &format::Life::epoch);
  if (life == descent.lineage.end()) {
    std::uint64_t oldest = descent.epoch;
    for (const format::Life& known : descent.lineage) {
      if (known.epoch != 0) oldest = std::min(oldest, known.epoch);
    }
    if (epoch < oldest) return std::nullopt;
    return fmt::format("void: saved in epoch {}, from which epoch {} does not descend", epoch, descent.epoch);
  }
  const bool is_before = life->counter != 0 ? generation.counter <= life->counter : step <= life->step;
  if (is_before) return std::nullopt;
  return fmt::format("void: epoch {} was left at step {} by what is now epoch {}", epoch, life->step, descent.epoch);
}

Fate check_replaceable(const fs::path& directory, const Replacing& may) {
  return fate_of(directory, look_at(directory), may);
}

void check_replaceable_stage(const fs::path& file, const Replacing& may,
                             const std::function<void(const fs::path&)>& open) {
  std::error_code ignored;
  if (fs::is_directory(fs::symlink_status(file, ignored))) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is a directory, which no staging file replaces; choose another name, or remove it",
                            shown(file)),
                {0, file.native()});
  }
  static_cast<void>(
      fate_of(file, without_errors(file, [&](const fs::path& path) { return look_at_stage(path, open); }), may));
}

}  // namespace cairn::root
