// State shared by the readers of all dialects while one directory is recognised: file numbers, warnings, and
// messages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"
#include "interop/data_set.hpp"
#include "interop/directory.hpp"

namespace cairn::interop {

class Reading {
 public:
  explicit Reading(const Directory& directory);

  [[nodiscard]] const Directory& directory() const { return directory_; }

  /// The sets of the directory's safetensors files, with their sections. Throws Error(kFormat) for an invalid index.
  const DataSets& sets();

  // Access to files by name, mainly to files that are not safetensors. list() and open() throw as FileAccess does.

  /// Regular files and folders in a folder below the directory, in name order; none without a FileAccess.
  std::vector<FolderEntry> list(const std::string& folder);
  /// A source of the file's bytes; empty without a FileAccess.
  base::ByteSource open(const std::string& file);
  /// Adds a file to the files with tensors, unless it is one of them already. Returns the file's number.
  std::uint32_t add_file(const std::string& file, std::uint64_t size_bytes);
  /// All files that hold tensors, by number.
  [[nodiscard]] const std::vector<format::StoredFile>& files() const { return files_; }
  /// Marks a folder as read, so that warnings do not name it; for "a/b" marks "a".
  void use_folder(std::string_view folder);
  [[nodiscard]] bool is_used(const std::string& folder) const { return used_folders_.contains(folder); }

  /// The header of a file that is known to exist.
  [[nodiscard]] const format::SafetensorsHeader& header(const std::string& file) const;
  /// The file's index in StoredCheckpoint::files, which has every safetensors file in name order, then the files that
  /// add_file() added.
  [[nodiscard]] std::uint32_t number(const std::string& file) const;

  /// The directory, escaped for a message, or all directories if the files are in several.
  [[nodiscard]] std::string place() const;
  /// "; looked in a, b and c" if the files are in several directories, to follow a message about a missing file.
  [[nodiscard]] std::string looked() const;
  /// The path "<directory>/<file>": raw_path_of() leaves it as it is, for parsers that escape it; path_of() escapes it.
  [[nodiscard]] std::string raw_path_of(std::string_view file) const;
  [[nodiscard]] std::string path_of(std::string_view file) const;
  /// An error about a file: "<directory>/<file>: <text>".
  [[nodiscard]] Error error(ErrorKind kind, std::string_view file, const std::string& text) const;

  void warn(std::string line) { warnings_.push_back(std::move(line)); }
  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  const Directory& directory_;
  std::optional<DataSets> sets_;
  std::vector<format::StoredFile> files_;
  std::map<std::string, std::uint32_t> numbers_;
  std::set<std::string, std::less<>> used_folders_;
  std::vector<std::string> warnings_;
};

/// A tensor of a file, unchanged: its only box is the whole tensor.
format::PlacedTensor whole_tensor(std::string_view section, const format::TensorEntry& entry,
                                  const format::SafetensorsHeader& header, std::uint32_t file);

/// A name from a file, escaped: in_quotes() for tensors, shown() for files.
std::string in_quotes(std::string_view name);
std::string shown(std::string_view name);

/// "a, b, c and 4 more".
std::string list_some(std::span<const std::string> names);

}  // namespace cairn::interop
