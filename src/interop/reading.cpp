// Messages and numbers for the readers of dialects.
#include "interop/reading.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"

namespace cairn::interop {

namespace {

constexpr std::size_t kLongestPath = 4096;

}  // namespace

Reading::Reading(const Directory& directory) : directory_(directory) {
  for (const auto& [name, header] : directory.safetensors) {
    add_file(name, header.file_bytes);
  }
}

const DataSets& Reading::sets() {
  if (!sets_) sets_ = find_sets(*this);
  return *sets_;
}

std::vector<FolderEntry> Reading::list(const std::string& folder) {
  if (!directory_.access.list) return {};
  return directory_.access.list(folder);
}

base::ByteSource Reading::open(const std::string& file) {
  if (!directory_.access.open) return {};
  return directory_.access.open(file);
}

std::uint32_t Reading::add_file(const std::string& file, std::uint64_t size_bytes) {
  const auto [at, added] = numbers_.emplace(file, static_cast<std::uint32_t>(files_.size()));
  if (added) files_.push_back({file, size_bytes});
  return at->second;
}

void Reading::use_folder(std::string_view folder) { used_folders_.emplace(folder.substr(0, folder.find('/'))); }

const format::SafetensorsHeader& Reading::header(const std::string& file) const {
  return directory_.safetensors.at(file);
}

std::uint32_t Reading::number(const std::string& file) const { return numbers_.at(file); }

std::string Reading::raw_path_of(std::string_view file) const {
  const auto part = directory_.part_of.find(std::string(file));
  const std::string& path = part == directory_.part_of.end() ? directory_.path : part->second;
  return path.empty() ? std::string(file) : path + "/" + std::string(file);
}

std::string Reading::looked() const { return directory_.parts.size() > 1 ? "; looked in " + place() : ""; }

std::string Reading::place() const {
  if (directory_.parts.size() > 1) {
    std::string all;
    for (std::size_t i = 0; i < directory_.parts.size(); ++i) {
      if (i != 0) all += i + 1 == directory_.parts.size() ? " and " : ", ";
      all += base::printable(directory_.parts[i], kLongestPath);
    }
    return all;
  }
  return directory_.path.empty() ? "the directory" : base::printable(directory_.path, kLongestPath);
}

std::string Reading::path_of(std::string_view file) const { return base::printable(raw_path_of(file), kLongestPath); }

Error Reading::error(ErrorKind kind, std::string_view file, const std::string& text) const {
  return {kind, path_of(file) + ": " + text};
}

format::PlacedTensor whole_tensor(std::string_view section, const format::TensorEntry& entry,
                                  const format::SafetensorsHeader& header, std::uint32_t file) {
  return {section, entry.name, entry.dtype, entry.shape, file, header.data_start + entry.begin};
}

std::string in_quotes(std::string_view name) { return "'" + base::printable(name) + "'"; }

std::string shown(std::string_view name) { return base::printable(name); }

std::string list_some(std::span<const std::string> names) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    out += (i == 0 ? "" : ", ") + base::printable(names[i]);
  }
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

}  // namespace cairn::interop
