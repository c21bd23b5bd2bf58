#include "interop/folders.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "cairn/error.hpp"
#include "interop/dialect.hpp"
#include "interop/file_names.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {
namespace {

/// A root may have thousands of folders; a hint needs a few.
constexpr std::size_t kMostFolders = 200;

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_data(const FolderEntry& entry) {
  const std::string_view file = last_part(entry.name);
  return !entry.is_folder && !file.starts_with('.') && (is_data_name(file) || is_pickle_name(file));
}

struct Found {
  std::vector<std::string> with_data;
  std::map<std::string, std::vector<std::string>> unread;  ///< reason -> folders
  std::vector<std::string> below;                          ///< their folders

  [[nodiscard]] bool is_empty() const { return with_data.empty() && unread.empty(); }
};

void look_into(const std::string& folder, std::span<const FolderEntry> entries, Found& found) {
  if (std::ranges::any_of(entries, is_data)) {
    found.with_data.push_back(folder);
    return;
  }
  for (const FolderEntry& entry : entries) {
    if (entry.is_folder) {
      found.below.push_back(entry.name);
      continue;
    }
    const std::string why = why_unread(last_part(entry.name));
    if (why.empty()) continue;
    found.unread[why].push_back(folder);
    return;
  }
}

Found look(std::span<const std::string> folders,
           const std::function<std::vector<FolderEntry>(const std::string&)>& list) {
  Found found;
  for (const std::string& folder : folders.first(std::min(folders.size(), kMostFolders))) {
    if (folder.ends_with(".partial") || last_part(folder).starts_with('.')) continue;
    std::vector<FolderEntry> entries;
    try {
      entries = list(folder);
    } catch (const Error&) {
      continue;  // a hint must not hide the error that it follows
    }
    look_into(folder, entries, found);
  }
  return found;
}

}  // namespace

std::string why_unread(std::string_view file) {
  if (file == "_CHECKPOINT_METADATA" || file == "_METADATA" || file == "manifest.ocdbt") {
    return "checkpoints of Orbax are not read";
  }
  for (const Dialect* dialect : dialects()) {
    if (const std::string_view why = dialect->why_unread(file); !why.empty()) return std::string(why);
  }
  struct Unread {
    std::string_view suffix;
    const char* why;
  };
  constexpr std::array<Unread, 9> kUnread = {{
      {".gguf", "GGUF files are not read: take the safetensors files that they were made from"},
      {".ckpt",
       "checkpoints in .ckpt files (of Lightning, TensorFlow and others) are not read: save them as safetensors "
       "with the program that wrote them"},
      {".h5",
       "HDF5 files are read if Cairn wrote them, and the file itself is given: convert others to safetensors with "
       "the program that wrote them"},
      {".keras", "files of Keras are not read: convert them to safetensors with Keras"},
      {".msgpack", "files of Flax (.msgpack) are not read: convert them to safetensors with transformers or Flax"},
      {".onnx", "ONNX files are not read: take the safetensors files that they were made from"},
      {".npz", "NumPy's files (.npy, .npz) are not read: save their arrays as safetensors"},
      {".npy", "NumPy's files (.npy, .npz) are not read: save their arrays as safetensors"},
      {".pkl", "pickles are not read: load them with Python, and save the tensors as safetensors"},
  }};
  for (const Unread& unread : kUnread) {
    if (file.ends_with(unread.suffix)) return unread.why;
  }
  return {};
}

std::string hint_of_folders(std::span<const std::string> folders,
                            const std::function<std::vector<FolderEntry>(const std::string&)>& list) {
  Found found = look(folders, list);
  if (found.is_empty()) found = look(std::vector(found.below), list);
  const auto is_of_rank = [](const std::string& folder) {
    return names_a_rank(std::string(last_part(folder)) + std::string(kDataSuffix));
  };
  if (std::ranges::all_of(found.with_data, is_of_rank) && !found.with_data.empty()) {
    return fmt::format("its folders {} hold what single ranks saved, which is not read", list_some(found.with_data));
  }
  if (found.with_data.size() == 1) {
    return fmt::format("its folder {} holds data files: give that folder", shown(found.with_data.front()));
  }
  if (!found.with_data.empty()) {
    return fmt::format("its folders {} hold data files: give one of them", list_some(found.with_data));
  }
  if (found.unread.empty()) return {};
  const auto& [why, where] = *found.unread.begin();
  return fmt::format("its {} {}: {}", where.size() == 1 ? "folder" : "folders", list_some(where), why);
}

}  // namespace cairn::interop
