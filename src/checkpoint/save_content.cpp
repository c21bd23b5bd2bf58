#include "checkpoint/save_content.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/environment.hpp"
#include "checkpoint/part.hpp"
#include "format/environment.hpp"
#include "format/limits.hpp"
#include "interop/file_names.hpp"
#include "opening/carried.hpp"
#include "os/file.hpp"
#include "planning/save_limits.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Rank 0's carried files.
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

/// Adds the sections of the layout's files.
void add_sections(root::CommitContent& content, const plan::FileLayout& layout) {
  for (const plan::DataFile& file : layout.files) content.section_of_file[file.name] = file.section;
}

/// Adds small files that the save generates, by name.
void add_texts(root::CommitContent& content, std::map<std::string, std::string> texts) {
  for (auto& [name, text] : texts) {
    const auto bytes = base::as_bytes(text);
    if (interop::set_of_index(name)) planning::check_index(name, text.size());
    content.carried.emplace(name, base::Bytes(bytes.begin(), bytes.end()));
    text = {};  // freed at once, because indexes are long
  }
}

/// On rank 0.
void add_environment(const comm::Communicator& communicator, const EnvironmentOptions& options,
                     const SaveRequest& request, root::CommitContent& content) {
  const std::string text = format::encode_environment(environment_of(communicator, options, request.directory));
  const auto bytes = base::as_bytes(text);
  if (content.carried.emplace(format::kEnvironmentFile, base::Bytes(bytes.begin(), bytes.end())).second) return;
  throw Error(ErrorKind::kUsage, fmt::format("'{}' is carried along, and Options::environment.record writes it as well",
                                             format::kEnvironmentFile));
}

/// On rank 0: the facts about a save that a form may need. `carried`: result of carried_content().
/// `with_config`: read config.json from the extras.
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

}  // namespace

root::CommitContent content_of_save(const comm::Communicator& communicator, const PlannedSave& planned,
                                    const Options& options, const SaveRequest& request,
                                    std::vector<std::string>& warnings) {
  const Extras& extras = request.extras;
  root::CommitContent content = root::make_content({});
  if (communicator.rank() == 0) {
    content.carried = carried_content(extras);
    if (options.environment.record) add_environment(communicator, options.environment, request, content);
  }
  format::Manifest& manifest = content.manifest;
  manifest.has_step = true;
  manifest.step = request.step;
  manifest.run_id = options.run_id;
  manifest.part = part_of(options);
  const interop::Form& form = interop::form_of_save(options.files.form);
  manifest.form = form.traits().word;
  manifest.layout = extras.layout;
  manifest.ranks = static_cast<std::uint64_t>(communicator.size());
  manifest.user_metadata = extras.metadata;
  add_sections(content, planned.files->layout);
  std::map<std::string, std::string> texts = planned.files->layout.index_files;
  if (planned.blob_files) {
    add_sections(content, planned.blob_files->layout);
    manifest.rank_blobs = manifest.ranks;
    texts.insert(planned.blob_files->layout.index_files.begin(), planned.blob_files->layout.index_files.end());
  }
  if (communicator.rank() == 0) {
    const interop::StateToWrite state =
        state_of_save(extras, content.carried, request.step, form.traits().reads_config);
    interop::FormFiles files = planned.files->checked->files_beside(std::move(texts), state, 0);
    texts = std::move(files.texts);
    for (auto& [key, value] : files.values) manifest.user_metadata[key] = std::move(value);
    warnings = std::move(files.notes.lines);
  }
  for (const auto& [name, value] : extras.metrics) {
    if (std::isfinite(value)) {
      manifest.metrics[name] = value;
    } else if (communicator.rank() == 0) {
      warnings.push_back(fmt::format("metric '{}' is {}, and is not recorded", base::printable(name), value));
    }
  }
  add_texts(content, std::move(texts));
  if (planned.coder) {
    manifest.quantisation = planned.coder->quantisation();
    if (!planned.coder->rebuilt().empty()) manifest.extra[format::kRebuiltKey] = planned.coder->rebuilt();
  }
  manifest.extra[kEngineKey] = planned.files->engine->name;
  manifest.extra[kHintsKey] = options.engine.hints;
  return content;
}

void check_content(const root::CommitContent& content, const PlannedSave& planned, const Options& options) {
  std::vector<plan::DataFile> files;
  for (const SavePlan* plan : {planned.files, planned.blob_files}) {
    if (plan == nullptr) continue;
    for (const plan::DataFile& file : plan->layout.files)
      files.push_back({file.name, file.section, {}, file.size_bytes});
  }
  planning::check_block_table(files, options.files.block_bytes);
  std::vector<std::string> carried;
  for (const auto& file : content.carried) carried.push_back(file.first);
  planning::check_manifest(content.manifest, files, carried);
}

}  // namespace cairn::checkpoint
