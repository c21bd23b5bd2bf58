#include "checkpoint/root.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "cairn/error.hpp"
#include "format/manifest.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::uint64_t kMaxManifestBytes = 1ULL << 30;

/// The step of "checkpoint-<digits>"; other names are not checkpoints of a root.
std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  std::uint64_t step = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (status != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (fmt::format("{}", step) != digits) return std::nullopt;
  return step;
}

void check_complete(RootEntry& entry) {
  const auto manifest_path = entry.directory / kManifestFile;
  try {
    if (!os::exists(manifest_path)) {
      entry.problem = fmt::format("no {}", kManifestFile);
      return;
    }
    const auto manifest =
        format::parse_manifest(os::read_text(manifest_path, kMaxManifestBytes), manifest_path.string());
    for (const auto* files : {&manifest.data_files, &manifest.carried_files}) {
      for (const auto& file : *files) {
        const auto path = entry.directory / file.name;
        if (!os::exists(path)) {
          entry.problem = fmt::format("{} is missing", file.name);
          return;
        }
        const std::uint64_t size = os::file_size(path);
        if (size != file.size_bytes) {
          entry.problem = fmt::format("{} has {} bytes, {} names {}", file.name, size, kManifestFile, file.size_bytes);
          return;
        }
      }
    }
    for (const auto& file : manifest.data_files) entry.bytes += file.size_bytes;
    entry.files = manifest.data_files.size();
    entry.complete = true;
  } catch (const Error& error) {
    entry.problem = error.what();
  }
}

std::vector<RootEntry> entries_of(const std::filesystem::path& root) {
  std::vector<RootEntry> entries;
  for (const auto& found : os::list_directory(root)) {
    if (!found.is_directory) continue;
    std::string_view name = found.name;
    RootEntry entry;
    entry.directory = root / found.name;
    if (name.ends_with(kPartialSuffix)) {
      entry.partial = true;
      name.remove_suffix(std::string_view(kPartialSuffix).size());
    }
    const auto step = step_of(name);
    if (!step) continue;
    entry.step = *step;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const RootEntry& a, const RootEntry& b) {
    return std::pair(a.partial, a.step) < std::pair(b.partial, b.step);
  });
  return entries;
}

}  // namespace

std::filesystem::path checkpoint_directory(const std::filesystem::path& root, std::uint64_t step) {
  return root / fmt::format("{}{}", kPrefix, step);
}

std::filesystem::path partial_directory(const std::filesystem::path& directory) {
  return directory.string() + kPartialSuffix;
}

std::vector<RootEntry> list_root(const std::filesystem::path& root) {
  auto entries = entries_of(root);
  for (RootEntry& entry : entries) {
    if (entry.partial) {
      entry.problem = "not committed";
    } else {
      check_complete(entry);
    }
  }
  return entries;
}

std::vector<std::filesystem::path> partial_directories(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> paths;
  for (const RootEntry& entry : entries_of(root)) {
    if (entry.partial) paths.push_back(entry.directory);
  }
  return paths;
}

std::optional<std::uint64_t> newest_complete(const std::filesystem::path& root) {
  if (!os::exists(root)) return std::nullopt;
  auto entries = entries_of(root);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->partial) continue;
    check_complete(*entry);
    if (entry->complete) return entry->step;
  }
  return std::nullopt;
}

}  // namespace cairn::checkpoint
