#include "opening/parts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/hf_index.hpp"
#include "format/safetensors.hpp"
#include "interop/aliases.hpp"
#include "interop/empty_weights.hpp"
#include "interop/file_names.hpp"
#include "interop/folders.hpp"
#include "os/errno_class.hpp"
#include "os/neighbour.hpp"
#include "os/system_calls.hpp"
#include "plan/extents.hpp"
#include "plan/stored_tensors.hpp"
#include "root/root.hpp"

namespace cairn::opening {
namespace {

namespace fs = std::filesystem;

std::string shown(const fs::path& path) { return "'" + os::shown(path) + "'"; }

std::string header_of(const fs::path& path) { return read_header_text({path, os::OpenMode::kRead}).text; }

/// Whether an index may list a file in a folder. Names of tensors can have a '/', too: only a text that ends like a
/// file's name counts, since parsing a large index twice is slow.
bool may_list_folders(std::string_view index) {
  constexpr std::string_view kPart = interop::kDataSuffix;
  for (std::size_t at = index.find(kPart); at != std::string_view::npos; at = index.find(kPart, at + 1)) {
    const std::string_view before = index.substr(0, at);
    if (before.substr(before.rfind('"') + 1).find('/') != std::string_view::npos) return true;
  }
  return false;
}

/// Says why an entry that is neither a file nor a directory cannot be read: it is a broken link, a FIFO or a socket.
std::string why_unreadable(const fs::path& directory, const os::DirectoryEntry& entry) {
  const fs::path path = directory / entry.name;
  if (entry.error != 0) return fmt::format("{} cannot be examined: {}", shown(path), os::error_text(entry.error));
  std::error_code failed;
  if (!entry.is_link) return fmt::format("{} is neither a file nor a directory", shown(path));
  const fs::path target = fs::read_symlink(path, failed);
  const bool is_broken = !fs::exists(path, failed);
  return fmt::format("{} is a link to {}, which {}", shown(path), shown(target),
                     is_broken ? "does not exist" : "is neither a file nor a directory");
}

/// Throws for an entry whose name says that it would be read: without it, a part would pass for the whole.
void refuse_unreadable(const fs::path& directory, const os::DirectoryEntry& entry) {
  const bool is_read = interop::is_data_name(entry.name) || interop::most_text_bytes(entry.name) > 0 ||
                       interop::is_cairn_file(entry.name) ||
                       interop::file_kind(entry.name) != interop::FileKind::kOther;
  if (!is_read) return;
  throw Error(entry.error == 0 ? ErrorKind::kFormat : ErrorKind::kIo,
              why_unreadable(directory, entry) + "; restore the file, or remove the name if nothing in it is needed",
              {entry.error, (directory / entry.name).native()});
}

/// The manifest's directory first, then the others in the given order.
std::vector<fs::path> in_order(const Parts& where) {
  std::vector<fs::path> paths = where.paths;
  if (paths.empty()) throw Error(ErrorKind::kUsage, "no directory of the checkpoint is given");
  const bool has_only_directories = paths.size() > 1 || where.sight == Sight::kEachRank;
  for (std::size_t i = 0; has_only_directories && i < paths.size(); ++i) {
    if (!os::exists(paths[i])) throw Error(ErrorKind::kNotFound, os::does_not_exist(paths[i]));
    if (!fs::is_directory(paths[i])) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} is not a directory; the parts of a checkpoint are directories", shown(paths[i])));
    }
    std::error_code failed;
    for (std::size_t j = 0; j < i; ++j) {
      if (!fs::equivalent(paths[i], paths[j], failed)) continue;
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} and {} are one directory; give each part once", shown(paths[j]), shown(paths[i])));
    }
  }
  const auto own =
      std::ranges::find_if(paths, [](const fs::path& path) { return os::exists(path / format::kManifestFile); });
  if (own != paths.end()) std::rotate(paths.begin(), own, std::next(own));
  return paths;
}

class Lister {
 public:
  Lister(Links links, IndexTexts index_texts) : links_(links), index_texts_(index_texts) {}

  void add(const fs::path& path) {
    const std::string name = path.string();
    if ((path.has_filename() ? path : path.parent_path()).string().ends_with(root::kPartialSuffix)) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("'{}' was never committed (a save is running, or was cut off); it is not a checkpoint",
                              base::printable(name)));
    }
    const std::vector<os::DirectoryEntry> entries = os::list_directory(path);
    check_links(path, entries, links_);
    is_of_cairn_ =
        is_of_cairn_ || std::ranges::find(entries, format::kManifestFile, &os::DirectoryEntry::name) != entries.end();
    for (const os::DirectoryEntry& entry : entries) {
      if (interop::is_companion(entry.name) || (interop::is_hidden_data(entry.name) && !is_of_cairn_)) continue;
      if (entry.is_directory) {
        if (std::ranges::find(out_.found.folders, entry.name) == out_.found.folders.end()) {
          out_.found.folders.push_back(entry.name);
        }
      } else if (entry.is_regular) {
        add_file(path, entry);
      } else {
        refuse_unreadable(path, entry);
        // Editors lock files by hidden links that lead nowhere.
        if (!entry.name.starts_with('.')) out_.warnings.push_back(why_unreadable(path, entry) + ": it is left out");
      }
    }
  }

  Listing take(const std::vector<fs::path>& paths) {
    add_files_in_folders(paths);
    out_.opened.directory = paths.front();
    out_.found.path = paths.front().string();
    for (const fs::path& path : paths) out_.found.parts.push_back(path.string());
    for (const auto& [file, path] : where_) {
      if (path == paths.front()) continue;
      out_.opened.part_of.emplace(file, path);
      out_.found.part_of.emplace(file, path.string());
    }
    if (replicas_ != 0) {
      out_.warnings.push_back(fmt::format("{} in two directories with one size and header, e.g. {}: the first is read",
                                          base::counted(replicas_, "file is", "files are"), replica_));
    }
    std::ranges::sort(out_.opened.stored.files, {}, &format::StoredFile::name);
    return std::move(out_);
  }

 private:
  /// Adds the data files in folders that an index lists, if they exist.
  void add_files_in_folders(const std::vector<fs::path>& paths) {
    for (const auto& [name, text] : out_.found.json) {
      if (!interop::set_of_index(name) || !may_list_folders(text)) continue;
      format::HfIndex index;
      try {
        index = format::parse_hf_index(text, name);
      } catch (const Error&) {
        continue;  // the dialect reports the error
      }
      for (const std::string& file : index.files) {
        if (file.find('/') == std::string::npos || !interop::is_data_name(file) || where_.contains(file)) continue;
        const auto part = std::ranges::find_if(paths, [&](const fs::path& path) {
          std::error_code failed;
          return fs::is_regular_file(path / file, failed);
        });
        if (part == paths.end()) continue;
        check_links(*part, {file}, links_);
        where_.emplace(file, *part);
        out_.opened.stored.files.push_back({file, os::file_size(*part / file)});
      }
    }
  }

  void add_file(const fs::path& path, const os::DirectoryEntry& entry) {
    const auto [first, is_new] = where_.emplace(entry.name, path);
    if (!is_new) {
      compare(entry.name, first->second / entry.name, path / entry.name);
    } else if (interop::is_data_name(entry.name)) {
      out_.opened.stored.files.push_back({entry.name, entry.size_bytes});
    } else if (const std::uint64_t most = interop::most_text_bytes(entry.name); most > 0 && entry.size_bytes <= most) {
      if (index_texts_ == IndexTexts::kLeave && interop::set_of_index(entry.name)) {
        out_.indexes.push_back(entry.name);
      } else {
        out_.found.json[entry.name] = os::read_text(path / entry.name, most);
      }
    } else if (entry.name != format::kManifestFile && entry.name != format::kBlocksFile) {
      out_.found.others[entry.name] = entry.size_bytes;
    }
  }

  /// Compares two files of the same name.
  void compare(const std::string& name, const fs::path& first, const fs::path& second) {
    const bool is_data = interop::is_data_name(name);
    const bool is_meaning = is_data || interop::set_of_index(name) || interop::is_cairn_file(name);
    const std::uint64_t size = os::file_size(first);
    const std::uint64_t other_size = os::file_size(second);
    std::string difference;
    if (size != other_size) {
      difference = fmt::format("{} and {} bytes", size, other_size);
    } else if (is_data ? header_of(first) != header_of(second)
                       : beginning_of(first, is_meaning ? size : kComparedBytes) !=
                             beginning_of(second, is_meaning ? size : kComparedBytes)) {
      difference = is_data ? "other headers" : "other contents";
    }
    if (difference.empty()) {
      if (is_data && replicas_++ == 0) replica_ = fmt::format("{} and {}", shown(first), shown(second));
      return;
    }
    const std::string text = fmt::format("{} and {} have one name and {}", shown(first), shown(second), difference);
    if (!is_meaning) {
      out_.differing.emplace(name, text);
      return;
    }
    throw Error(ErrorKind::kFormat, text + ": they are not parts of one checkpoint", {0, second.native()});
  }

  Links links_;
  IndexTexts index_texts_;
  Listing out_;
  std::map<std::string, fs::path> where_;
  bool is_of_cairn_ = false;  // a directory that was added has a manifest; the one with it is the first
  std::size_t replicas_ = 0;
  std::string replica_;  ///< paths of the first two equal files
};

}  // namespace

std::string beginning_of(const fs::path& path, std::uint64_t most_bytes) {
  const os::File file(path, os::OpenMode::kRead);
  std::string text(std::min(file.size_bytes(), most_bytes), '\0');
  file.read_at(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

Listing list_parts(const Parts& where, Links links, IndexTexts index_texts) {
  const std::vector<fs::path> paths = in_order(where);
  Lister lister(links, index_texts);
  for (const fs::path& path : paths) lister.add(path);
  return lister.take(paths);
}

interop::FileAccess access_to(const Parts& where, Links links) {
  const auto inside = [links](const fs::path& directory, const std::string& name) {
    format::check_relative_path(name, directory.string());
    check_links(directory, {name}, links);
    return directory / name;
  };
  /// The directories that have the file; if none has it, the first directory, whose error names the file.
  const auto holders = [paths = where.paths](const std::string& name) {
    std::vector<fs::path> found;
    for (const fs::path& path : paths) {
      format::check_relative_path(name, path.string());
      if (os::exists(path / name)) found.push_back(path);
    }
    if (found.empty()) found.push_back(paths.front());
    return found;
  };
  interop::FileAccess access;
  access.list = [inside, holders, is_one = where.is_one()](const std::string& folder) {
    std::vector<interop::FolderEntry> entries;
    for (const fs::path& directory : holders(folder)) {
      for (const os::DirectoryEntry& entry : os::list_directory(inside(directory, folder))) {
        if (!entry.is_directory && !entry.is_regular) {
          if (!interop::is_companion(entry.name)) refuse_unreadable(directory / folder, entry);
          continue;
        }
        const std::string name = folder + "/" + entry.name;
        const auto known = is_one ? entries.end() : std::ranges::find(entries, name, &interop::FolderEntry::name);
        if (known == entries.end()) {
          entries.push_back({name, entry.size_bytes, entry.is_directory});
        } else if (!entry.is_directory && known->size_bytes != entry.size_bytes) {
          throw Error(ErrorKind::kFormat,
                      fmt::format("{} has {} bytes, and {} in another part of the checkpoint: they are not parts of "
                                  "one checkpoint",
                                  shown(directory / name), entry.size_bytes, known->size_bytes),
                      {0, (directory / name).native()});
        }
      }
    }
    std::ranges::sort(entries, {}, &interop::FolderEntry::name);
    return entries;
  };
  access.open = [inside, holders](const std::string& name) {
    const auto file = std::make_shared<os::File>(inside(holders(name).front(), name), os::OpenMode::kRead);
    return base::ByteSource{file->size_bytes(),
                            [file](std::span<std::byte> to, std::uint64_t at_bytes) { file->read_at(to, at_bytes); }};
  };
  return access;
}

std::string hint_of_folders(const fs::path& directory) {
  std::vector<std::string> folders;
  try {
    for (const os::DirectoryEntry& entry : os::list_directory(directory)) {
      if (entry.is_directory) folders.push_back(entry.name);
    }
  } catch (const Error&) {
    return {};  // whoever asks has an error or an empty list to tell already
  }
  return interop::hint_of_folders(folders, access_to(directory, Links::kInside).list);
}

bool may_be_foreign(const root::RootEntry& step) {
  const auto has_file = [&](const char* name) { return os::exists(step.directory / name); };
  return !step.partial && step.condition == root::Condition::kForeign && !has_file(format::kManifestFile) &&
         !has_file(format::kBlocksFile);
}

StepProblem problem_of_step(const root::RootEntry& step, const Allowed& allowed) {
  if (!may_be_foreign(step)) return {step.problem};
  try {
    return {fmt::format("it is a checkpoint of {}, without {}", open_here(step.directory, allowed).about.dialect,
                        format::kManifestFile),
            true};
  } catch (const Error& error) {
    if (os::is_shortage(error)) throw;
    return {fmt::format("{}; {}", step.problem, error.what())};
  }
}

void add_warnings(std::vector<std::string>& warnings, const Listing& listing) {
  warnings.insert(warnings.end(), listing.warnings.begin(), listing.warnings.end());
  for (const auto& [file, text] : listing.differing) warnings.push_back(text + ": the first is read");
}

void warn_of_tensors(OpenCheckpoint& opened) {
  for (std::string& words : interop::aliases_of(opened.metadata, opened.stored.tensors).dangling) {
    opened.warnings.push_back(std::move(words));
  }
  if (opened.manifest) return;
  std::string words = interop::empty_weights(opened.stored.tensors).words;
  if (!words.empty()) opened.warnings.push_back(std::move(words));
}

OpenCheckpoint describe(Listing listing, const Parts& where) {
  OpenCheckpoint opened = std::move(listing.opened);
  interop::Recognised recognised = interop::recognise(listing.found);
  // The tensors refer to recognised.stores, but not to `listing.found`.
  listing.found.json.clear();
  for (auto& [name, header] : listing.found.safetensors) {
    header.tensors = {};
    opened.metadata_of_files.push_back(std::move(header.metadata));
  }
  opened.stored = {std::move(recognised.files), plan::StoredTensors(recognised.tensors)};
  opened.group_of_file = plan::section_groups(opened.stored);
  opened.quantised = std::move(recognised.quantised);
  static_cast<interop::Description&>(opened) = std::move(recognised);
  add_warnings(opened.warnings, listing);
  warn_of_tensors(opened);
  for (const format::StoredFile& file : opened.stored.files) {
    const auto differing = listing.differing.find(file.name);
    if (differing != listing.differing.end()) {
      throw Error(ErrorKind::kFormat, differing->second + ": they are not parts of one checkpoint");
    }
    // Files in folders were not listed.
    if (file.name.find('/') == std::string::npos || os::exists(opened.directory / file.name)) continue;
    const auto part = std::ranges::find_if(where.paths, [&](const fs::path& p) { return os::exists(p / file.name); });
    if (part != where.paths.end()) opened.part_of.emplace(file.name, *part);
  }
  return opened;
}

format::SafetensorsHeader header_alone(const fs::path& path) {
  return os::about(path, [&] {
    const os::File file(path, os::OpenMode::kRead);
    try {
      const FileText header = read_header_text(file, {});
      return format::parse_header(header.text, header.file_bytes, path.string());
    } catch (const format::SafetensorsError& error) {
      const std::string name = path.filename().string();
      const std::string why = interop::is_data_name(name) ? "" : interop::why_unread(name);
      if (why.empty() || error.safetensors_kind() == format::SafetensorsErrorKind::kNotSafetensors) throw;
      throw Error(ErrorKind::kFormat, fmt::format("'{}' is not a safetensors file: {}", os::shown(path), why));
    }
  });
}

}  // namespace cairn::opening
