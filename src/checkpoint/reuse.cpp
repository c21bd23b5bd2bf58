#include "checkpoint/reuse.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "format/limits.hpp"
#include "os/errno_class.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/share_file.hpp"
#include "root/root.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The checkpoint from which files are taken; nothing if there is none.
std::optional<root::RootEntry> earlier_of(const Options& options, const fs::path& root,
                                          const std::optional<format::Part>& part) {
  const std::vector<root::RootEntry> entries = root::list_root(root);
  const auto with_step = [&](std::uint64_t step) -> std::optional<root::RootEntry> {
    const auto found = std::ranges::find_if(
        entries, [&](const root::RootEntry& entry) { return entry.step == step && entry.is_complete(); });
    return found == entries.end() ? std::nullopt : std::optional(*found);
  };
  if (options.reuse_step) {
    auto chosen = with_step(*options.reuse_step);
    if (!chosen) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("'{}' has no complete step {} to take files from (Options::reuse_step)", os::shown(root),
                              *options.reuse_step),
                  {0, root.native(), -1, Missing::kStep});
    }
    return chosen;
  }
  if (!part) {
    const auto step = root::newest_step(root, entries);
    return step ? with_step(*step) : std::nullopt;
  }
  std::optional<root::RootEntry> newest;
  for (const root::RootEntry& entry : entries) {
    const bool is_same = entry.is_complete() && entry.part && words_of_tensors(*entry.part) == words_of_tensors(*part);
    if (is_same && (!newest || newest->generation < entry.generation)) newest = entry;
  }
  return newest;
}

/// The outcome of an attempt to take a file, as it travels.
enum class Taken : char { kNo, kCloned, kLinked, kImpossible, kFailed };

/// Rank-local. `why`: the first failure.
Taken take(const fs::path& from, const fs::path& to, Reuse how, std::string& why) {
  try {
    if (os::clone_file(from, to)) return Taken::kCloned;
    if (how == Reuse::kHardLink && os::link_file(from, to)) return Taken::kLinked;
    return Taken::kImpossible;
  } catch (const Error& error) {
    if (os::is_shortage(error)) throw;
    os::remove_tree(to);
    if (why.empty()) why = error.what();
    return Taken::kFailed;
  }
}

std::string words_of_files(const SavePlan& plan, const std::vector<std::uint32_t>& files) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  for (const std::uint32_t file : std::span(files).first(std::min(files.size(), kNamed)))
    names.push_back(base::printable(plan.layout.files[file].name));
  std::string text = base::joined(names);
  if (files.size() > kNamed) text += fmt::format(" and {} more", files.size() - kNamed);
  return text;
}

}  // namespace

bool can_reuse(const Options& options, const SavePlan& plan) {
  return options.reuse != Reuse::kNever && !plan.engine->traits.uses_mpi_io &&
         std::ranges::find(plan.frozen_files, true) != plan.frozen_files.end();
}

Earlier find_earlier(comm::Communicator& communicator, const Options& options, const SavePlan& plan,
                     const fs::path& root, const std::optional<format::Part>& part, Report& report) {
  Earlier earlier;
  base::Bytes bytes;
  comm::agree_on_root(communicator, "reuse.find", 0, [&] {
    os::fault_point("reuse.find", root);
    std::vector<std::uint64_t> numbers(plan.layout.files.size());
    try {
      if (const auto entry = earlier_of(options, root, part)) {
        const fs::path path = entry->directory / format::kManifestFile;
        const format::Manifest manifest =
            format::parse_manifest(os::read_text(path, format::limits::kManifestBytes), path.string());
        earlier.directory = entry->directory;
        earlier.step = entry->step;
        std::ranges::copy_if(manifest.data_files, std::back_inserter(earlier.files),
                             [](const format::ManifestFile& file) { return !file.blocks_sha256.empty(); });
      }
    } catch (const Error& error) {
      if (os::is_shortage(error) || options.reuse_step) throw;
      report.warnings.push_back(fmt::format("all files are written: {}", error.what()));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const plan::DataFile& file = plan.layout.files[i];
      const bool is_known = plan.frozen_files[i] && std::ranges::any_of(earlier.files, [&](const auto& known) {
                              return known.section == file.section && known.size_bytes == file.size_bytes;
                            });
      numbers[i] = is_known ? 1 : 0;
    }
    base::ByteWriter out;
    out.u64(earlier.step.value_or(0));
    out.u64s(numbers);
    bytes = out.take();
  });
  communicator.share(bytes, 0);
  comm::agree(communicator, "reuse.find", [&] {
    base::ByteReader in(bytes);
    const std::uint64_t step = in.u64();
    earlier.may_be_equal.clear();
    for (std::uint64_t left = in.u64(); left > 0; --left) earlier.may_be_equal.push_back(in.u64() != 0);
    const bool any = std::ranges::find(earlier.may_be_equal, true) != earlier.may_be_equal.end();
    earlier.step = any ? std::optional(step) : std::nullopt;
  });
  return earlier;
}

std::vector<bool> take_files(comm::Communicator& communicator, const Options& options, const SavePlan& plan,
                             const Earlier& earlier, const ContentDigests& digests, const fs::path& partial,
                             Report& report) {
  base::Bytes bytes(plan.layout.files.size(), std::byte{0});
  std::string why;
  std::vector<std::uint32_t> changed;
  comm::agree_on_root(communicator, "reuse.take", 0, [&] {
    os::fault_point("reuse.take", partial);
    for (std::uint32_t file = 0; file < bytes.size(); ++file) {
      if (!earlier.may_be_equal[file]) continue;
      const plan::DataFile& wanted = plan.layout.files[file];
      const std::string digest = digests.digest_of(file);
      const auto same = std::ranges::find_if(earlier.files, [&](const format::ManifestFile& known) {
        return known.blocks_sha256 == digest && known.size_bytes == wanted.size_bytes;
      });
      if (same == earlier.files.end()) {
        changed.push_back(file);
        continue;
      }
      bytes[file] =
          static_cast<std::byte>(take(earlier.directory / same->name, partial / wanted.name, options.reuse, why));
      os::fault_point("reuse.taken", partial / wanted.name);
    }
  });
  communicator.share(bytes, 0);
  std::vector<bool> taken(bytes.size());
  comm::agree(communicator, "reuse.take", [&] {
    std::vector<std::uint32_t> impossible;
    for (std::uint32_t file = 0; file < bytes.size(); ++file) {
      const auto outcome = static_cast<Taken>(bytes[file]);
      taken[file] = outcome == Taken::kCloned || outcome == Taken::kLinked;
      if (outcome == Taken::kImpossible || outcome == Taken::kFailed) impossible.push_back(file);
      if (!taken[file]) continue;
      ++report.reused_files;
      report.reused_bytes += plan.layout.files[file].size_bytes;
      report.reused_from = earlier.step;
    }
    if (!changed.empty()) {
      report.warnings.push_back(
          fmt::format("tensors that Options::frozen selects have changed since step {}: {} {} written", *earlier.step,
                      words_of_files(plan, changed), changed.size() == 1 ? "was" : "were"));
    }
    if (communicator.rank() == 0 && !impossible.empty()) {
      report.warnings.push_back(fmt::format(
          "{} of frozen tensors {} written again: {}", base::counted(impossible.size(), "file"),
          impossible.size() == 1 ? "was" : "were",
          !why.empty()                       ? why
          : options.reuse == Reuse::kReflink ? "the storage shares no content between files (Reuse::kHardLink would)"
                                             : "the storage neither shares content between files nor links them"));
    }
  });
  return taken;
}

}  // namespace cairn::checkpoint
