#include "checkpoint/save_content.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/json.hpp"
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
    text = {};  // indexes are long: not two copies of all of them
  }
}

interop::PaddleBeside beside_of_save(const Extras& extras, const std::map<std::string, base::ByteStream>& carried,
                                      std::uint64_t step) {
  const auto value_of = [&](const char* key) {
    const auto value = extras.metadata.find(key);
    return value == extras.metadata.end() ? std::string() : value->second;
  };
  interop::PaddleBeside beside;
  beside.found = interop::parse_paddle_state(value_of(interop::kPaddleValue)).value_or(interop::PaddleState());
  beside.lost_codes = beside.found.stage != "O0";  // a program has no codes
  for (const auto& file : carried) beside.carried.push_back(file.first);
  const std::string config = "config.json";
  const auto parsed = [&](const std::string& text) {
    try {
      return base::Json::parse(text, config);
    } catch (const Error& error) {  // it is the program's, and no file of a checkpoint
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} that is to be carried along, by which PaddlePaddle's trainers resume: {}", config,
                              error.what()));
    }
  };
  if (const auto text = extras.carry_texts.find(config); text != extras.carry_texts.end()) {
    beside.config = parsed(text->second);
  }
  for (const fs::path& path : extras.carry_files) {
    if (path.filename() == config) beside.config = parsed(os::read_text(path, format::limits::kIndexBytes));
  }
  beside.step = step;
  beside.scheduler = value_of("scheduler");
  return beside;
}

}  // namespace cairn::checkpoint
