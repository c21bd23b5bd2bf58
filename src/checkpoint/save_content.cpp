#include "checkpoint/save_content.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/limits.hpp"
#include "interop/file_names.hpp"
#include "opening/carried.hpp"
#include "os/file.hpp"
#include "planning/save_limits.hpp"
#include "root/root.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::map<std::string, base::ByteStream> carried_content(const Extras& extras) {
  std::map<std::string, base::ByteStream> carried;
  const auto put = [&](const std::string& name, base::ByteStream content) {
    planning::check_carried_name(name);
    if (!carried.emplace(name, std::move(content)).second) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' is given twice to be carried along", base::printable(name)));
    }
  };
  for (const fs::path& path : extras.carry_files) put(path.filename().string(), opening::file_stream(path));
  for (const auto& [name, text] : extras.carry_texts) {
    const auto bytes = base::as_bytes(text);
    put(name, base::Bytes(bytes.begin(), bytes.end()));
  }
  return carried;
}

void add_sections(root::CommitContent& content, const plan::FileLayout& layout) {
  for (const plan::DataFile& file : layout.files) content.section_of_file[file.name] = file.section;
}

void add_texts(root::CommitContent& content, std::map<std::string, std::string> texts) {
  for (auto& [name, text] : texts) {
    const auto bytes = base::as_bytes(text);
    if (interop::set_of_index(name)) planning::check_index(name, text.size());
    content.carried.emplace(name, base::Bytes(bytes.begin(), bytes.end()));
    text = {};  // indexes are long: not two copies of all of them at once
  }
}

interop::StateToWrite state_of_save(const Extras& extras, const std::map<std::string, base::ByteStream>& carried,
                                    std::uint64_t step, bool with_config) {
  interop::StateToWrite state;
  state.values = extras.metadata;
  for (const auto& file : carried) state.carried.push_back(file.first);
  state.step = step;
  if (!with_config) return state;
  const std::string config = "config.json";
  if (const auto text = extras.carry_texts.find(config); text != extras.carry_texts.end()) state.config = text->second;
  for (const fs::path& path : extras.carry_files) {
    if (path.filename() == config) state.config = os::read_text(path, format::limits::kIndexBytes);
  }
  return state;
}

}  // namespace cairn::checkpoint
