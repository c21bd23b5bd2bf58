// Checks option values before any work begins.
#include "cli/arguments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>
#include <system_error>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/text.hpp"
#include "bench/raw_file.hpp"
#include "comm/agree.hpp"
#include "format/manifest.hpp"
#include "interop/file_names.hpp"
#include "opening/parts.hpp"
#include "os/file.hpp"
#include "os/neighbour.hpp"
#include "root/root.hpp"
#include "shard/layout.hpp"

namespace cairn::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;
constexpr std::uint64_t kMaxAlignBytes = 1ULL << 30;
constexpr std::uint64_t kMaxRequestBytes = 1ULL << 30;

constexpr std::string_view kDirectoryPrefix = "checkpoint-";

bool is_root(const std::filesystem::path& path) {
  bool has_checkpoints = false;
  for (const os::DirectoryEntry& entry : os::list_directory(path)) {
    if (entry.is_directory) {
      has_checkpoints = has_checkpoints || entry.name.starts_with(kDirectoryPrefix);
    } else if (interop::is_data_name(entry.name) || interop::is_pickle_name(entry.name) ||
               entry.name == format::kManifestFile) {
      return false;
    }
  }
  return has_checkpoints;
}

Error refused(const std::string& text, const std::string& why) {
  return {ErrorKind::kUsage, fmt::format("'{}' {}", base::printable(text), why)};
}

std::string name_of(const root::RootEntry& entry) { return base::printable(entry.directory.filename().string()); }

ResolvedPath newest_of(const std::filesystem::path& root) {
  std::vector<root::RootEntry> entries = root::list_root(root);
  const auto step = root::newest_step(root, entries);
  const std::size_t partial = std::erase_if(entries, [](const root::RootEntry& entry) { return entry.partial; });
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  const auto newest = std::find_if(entries.begin(), entries.end(),
                                   [&](const auto& entry) { return entry.is_complete() && entry.step == step; });
  if (newest == entries.end()) {
    const std::string parts = root::words_of_parts(entries);
    const std::string why = !parts.empty()     ? fmt::format("none holds a whole state{}", parts)
                            : !entries.empty() ? fmt::format("the newest, {}: {}", name_of(entries.front()),
                                                             opening::problem_of_step(entries.front()).words)
                            : partial != 0     ? fmt::format("only {} partial", partial)
                                               : "no directory is called checkpoint-<step>";
    const std::string hint = opening::hint_of_folders(root);
    throw Error(ErrorKind::kNotFound,
                fmt::format("no complete checkpoint under '{}': {}; name a checkpoint directory{}",
                            base::printable(root.string()), why, hint.empty() ? "" : ": " + hint));
  }
  ResolvedPath out{newest->directory, {}};
  for (auto entry = entries.begin(); entry != newest; ++entry) {
    if (entry->is_complete() && !entry->is_void && entry->part) {
      out.notes.push_back(fmt::format("{} holds only {}", name_of(*entry), format::words_of_tensors(*entry->part)));
      continue;
    }
    if (entry->is_complete() && !entry->is_void) continue;  // a user made the latest file name an older step
    const opening::StepProblem problem = opening::problem_of_step(*entry);
    const bool is_whole = entry->is_complete() || problem.is_readable;
    out.notes.push_back(fmt::format("{} is {}: {}", name_of(*entry),
                                    is_whole ? "of a higher step" : "newer but not complete", problem.words));
    if (problem.is_readable) continue;
    if (entry->condition == root::Condition::kIncomplete && !entry->is_void) out.lost.push_back(out.notes.back());
  }
  out.notes.push_back(fmt::format("'{}' is a root of {}; this is {}, the newest complete one",
                                  base::printable(root.string()), base::counted(entries.size(), "checkpoint"),
                                  name_of(*newest)));
  return out;
}

}  // namespace

std::map<std::string, std::string> parse_hints(const std::vector<std::string>& words) {
  std::map<std::string, std::string> hints;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(ErrorKind::kUsage, fmt::format("--hint '{}' is not key=value", base::printable(word)));
    }
    if (!hints.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      throw Error(ErrorKind::kUsage, fmt::format("--hint {} is given twice", base::printable(word.substr(0, equals))));
    }
  }
  return hints;
}

std::uint64_t size_in(const std::string& text) {
  const std::uint64_t bytes = base::parse_size(text);
  if (bytes == 0) throw refused(text, "is less than a byte");
  return bytes;
}

std::uint64_t alignment_in(const std::string& text) {
  const std::uint64_t bytes = base::parse_size(text);
  if (bytes >= 8 && bytes <= kMaxAlignBytes && std::has_single_bit(bytes)) return bytes;
  throw refused(text, fmt::format("is not a power of two from 8 to {}", kMaxAlignBytes));
}

std::uint64_t request_size_in(const std::string& text) {
  const std::uint64_t bytes = base::parse_size(text);
  if (bytes != 0 && bytes % bench::kRawPageBytes == 0 && bytes <= kMaxRequestBytes) return bytes;
  throw refused(text, fmt::format("is not a multiple of {} up to 1 GiB", bench::kRawPageBytes));
}

std::uint64_t rate_in(const std::string& text) {
  const std::string size = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
  const bool has_unit = !size.empty() && std::isalpha(static_cast<unsigned char>(size.back())) != 0;
  const std::uint64_t bytes = size_in(size);
  if (!has_unit) throw refused(text, "has no unit; write it like 100GiB/s");
  return bytes;
}

double seconds_in(const std::string& text) {
  static const std::map<std::string_view, double> kUnits = {{"", 1},     {"ms", 1e-3}, {"s", 1},     {"m", 60},
                                                            {"min", 60}, {"h", 3'600}, {"d", 86'400}};
  constexpr double kMost = 1e9;
  const std::size_t unit_at = std::min(text.find_last_of("0123456789.") + 1, text.size());
  const auto unit = kUnits.find(std::string_view(text).substr(unit_at));
  const auto number = base::number_in<double>(std::string_view(text).substr(0, unit_at));
  if (unit == kUnits.end() || !number || !std::isfinite(*number)) {
    throw refused(text, "is not a time; write it like 1.2, 250ms, 90s, 15m, 3h or 2d");
  }
  const double seconds = *number * unit->second;
  if (!(seconds >= 0 && seconds <= kMost)) throw refused(text, "is out of range; give a time from 0 s to 1e9 s");
  return seconds;
}

std::uint64_t sample_in(const std::string& text) {
  if (text == "all") return std::numeric_limits<std::uint64_t>::max();
  if (const auto number = base::number_in<std::uint64_t>(text); number && *number != 0) return *number;
  throw refused(text, "is not a number of ranks above 0, or all");
}

unsigned mode_in(const std::string& text) {
  constexpr unsigned kPermissionBits = 0777;
  constexpr unsigned kOwnerBits = 0600;
  const auto mode = base::number_in<unsigned>(text, 8);
  if (!mode) throw refused(text, "is not a mode in octal digits, like 660");
  if (*mode > kPermissionBits) throw refused(text, "has more than permission bits; give a mode like 660");
  if ((*mode & kOwnerBits) != kOwnerBits) throw refused(text, "keeps the owner from reading or writing");
  return *mode;
}

std::string text_or_file(comm::Communicator& communicator, const std::string& argument) {
  if (!argument.starts_with('@')) return argument;
  const std::filesystem::path path = argument.substr(1);
  std::string text;
  comm::agree_on_root(communicator, "read argument", 0, [&] {
    if (path.empty()) throw Error(ErrorKind::kUsage, "'@' names no file: the path is empty");
    if (!os::exists(path)) throw Error(ErrorKind::kNotFound, os::does_not_exist(path));
    text = os::read_text(path, kMaxTextBytes);
  });
  communicator.share(text, 0);
  return text;
}

std::string layout_text(comm::Communicator& communicator, const std::string& argument) {
  return shard::Layout::from_text(text_or_file(communicator, argument)).text();
}

opening::Parts ResolvedPath::parts(Sight sight) const {
  std::vector<std::filesystem::path> all = {path};
  all.insert(all.end(), more.begin(), more.end());
  return {std::move(all), sight};
}

void require_directory(const std::filesystem::path& path, const std::string& hint, ErrorKind kind,
                       const std::string& before) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) return;
  const bool is_there = os::exists(path);
  std::string problem = is_there ? fmt::format("'{}' is not a directory", os::shown(path)) : os::does_not_exist(path);
  if (is_there || os::neighbour_of(path).empty()) problem += hint;
  throw Error(kind, before + problem);
}

ResolvedPath resolve_here(const std::filesystem::path& path, const std::vector<std::string>& more) {
  if (!more.empty()) return {path, {}, more};
  if (path.empty()) throw Error(ErrorKind::kUsage, "the path is empty");
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (status.type() == std::filesystem::file_type::not_found) throw root::does_not_exist(path);
  if (failed) {
    throw Error(ErrorKind::kIo,
                fmt::format("cannot look at '{}': {}", base::printable(path.string()), failed.message()));
  }
  if (!std::filesystem::is_directory(status) || !is_root(path)) return {path, {}};
  return newest_of(path);
}

ResolvedPath resolve(comm::Communicator& communicator, const std::filesystem::path& path,
                     const std::vector<std::string>& more) {
  if (!more.empty()) return {path, {}, more};
  base::Bytes message;
  comm::agree_on_root(communicator, "find checkpoint", 0, [&] {
    const ResolvedPath found = resolve_here(path);
    base::ByteWriter writer;
    writer.text(found.path.string());
    writer.u64(found.notes.size());
    for (const std::string& note : found.notes) writer.text(note);
    for (const std::string& lost : found.lost) writer.text(lost);
    message = writer.take();
  });
  communicator.share(message, 0);
  base::ByteReader reader(message);
  ResolvedPath out{reader.text(), {}};
  const std::uint64_t notes = reader.u64();
  for (std::uint64_t n = 0; n < notes; ++n) out.notes.push_back(reader.text());
  while (!reader.done()) out.lost.push_back(reader.text());
  return out;
}

namespace {

/// Whether a folder or one of its folders, down to `depth`, has an index. Where this cannot be seen, opening the
/// checkpoint says why.
bool has_index(const std::filesystem::path& folder, int depth) {
  std::error_code failed;
  for (auto entry = std::filesystem::directory_iterator(folder, failed); !failed && entry != end(entry);
       entry.increment(failed)) {
    if (interop::set_of_index(entry->path().filename().native())) return true;
    std::error_code unknown;
    if (depth > 0 && entry->is_directory(unknown) && has_index(entry->path(), depth - 1)) return true;
  }
  return static_cast<bool>(failed);
}

}  // namespace

void refuse_idle_trust(std::initializer_list<const ResolvedPath*> checkpoints) {
  constexpr int kDepth = 2;
  bool is_own = true;
  for (const ResolvedPath* checkpoint : checkpoints) {
    std::vector<std::filesystem::path> folders(checkpoint->more.begin(), checkpoint->more.end());
    folders.push_back(checkpoint->path);
    const auto has_manifest = [](const auto& folder) { return os::exists(folder / format::kManifestFile); };
    if (std::ranges::any_of(folders, has_manifest)) continue;
    is_own = false;
    if (std::ranges::any_of(folders, [](const auto& folder) { return has_index(folder, kDepth); })) return;
  }
  throw Error(
      ErrorKind::kUsage,
      fmt::format("--trust-index has no effect on '{}', {}: leave it out", os::shown((*checkpoints.begin())->path),
                  is_own ? "a checkpoint of Cairn, whose manifest names the files" : "which has no index"));
}

bench::DemoState demo_state(comm::Communicator& communicator, const std::string& argument,
                            std::optional<std::uint64_t> layers) {
  if (!argument.starts_with('@')) return bench::demo_state_by_name(argument, layers);
  const std::string config = text_or_file(communicator, argument);
  try {
    return bench::demo_state_of_config(config, layers);
  } catch (const Error& error) {  // calls the text config.json, whatever its file is called
    constexpr std::string_view kCalled = "config.json: ";
    std::string_view text = error.what();
    if (text.starts_with(kCalled)) text.remove_prefix(kCalled.size());
    throw error.with_message(fmt::format("'{}': {}", base::printable(argument.substr(1)), text));
  }
}

}  // namespace cairn::cli
