#include "checkpoint/save_content.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "directory/carried.hpp"
#include "directory/root.hpp"
#include "format/hf_index.hpp"
#include "interop/file_names.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_reserved(const std::string& name) {
  return name == kManifestFile || name == kBlocksFile || name.ends_with(".safetensors") ||
         interop::set_of_index(name).has_value();
}

}  // namespace

std::map<std::string, base::ByteStream> carried_content(const Extras& extras) {
  std::map<std::string, base::ByteStream> carried;
  const auto put = [&](const std::string& name, base::ByteStream content) {
    format::check_relative_path(name, "a file to carry along");
    if (name.find('/') != std::string::npos || is_reserved(name)) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("'{}' cannot be carried along: the name is Cairn's own or has a folder", base::printable(name)));
    }
    if (!carried.emplace(name, std::move(content)).second) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' is given twice to be carried along", base::printable(name)));
    }
  };
  for (const fs::path& path : extras.carry_files) put(path.filename().string(), file_stream(path));
  for (const auto& [name, text] : extras.carry_texts) {
    const auto bytes = base::as_bytes(text);
    put(name, base::Bytes(bytes.begin(), bytes.end()));
  }
  return carried;
}

void add_layout(CommitContent& content, const plan::FileLayout& layout) {
  for (const auto& [name, text] : layout.index_files) {
    const auto bytes = base::as_bytes(text);
    content.carried.emplace(name, base::Bytes(bytes.begin(), bytes.end()));
  }
  for (const plan::DataFile& file : layout.files) content.section_of_file[file.name] = file.section;
}

}  // namespace cairn::checkpoint
