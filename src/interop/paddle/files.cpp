#include "interop/paddle/files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <string_view>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "interop/paddle/paddle.hpp"
#include "plan/hf_layout.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr std::string_view kModel = "model";
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";
constexpr std::string_view kAdapter = "adapter";

/// An index lists the tensors as they were before coding: both moments, no scales. Coded moments count as F32.
plan::IndexFile paddle_index(const plan::HfLayout& files, std::size_t number) {
  const plan::HfLayout::Section& section = files.section(number);
  PaddleIndex index;
  std::deque<std::string> names;                   // the index refers to these
  std::map<std::uint32_t, std::uint32_t> numbers;  // file of the layout -> its number in the index
  const auto add = [&](std::string name, std::uint32_t file, std::uint64_t bytes) {
    const auto [at, is_new] = numbers.emplace(file, static_cast<std::uint32_t>(index.files.size()));
    if (is_new) index.files.push_back(files.name_of(file));
    names.push_back(std::move(name));
    index.tensors.push_back({names.back(), at->second});
    index.total_bytes = base::add(index.total_bytes, bytes, "total size of an index");
  };
  for (plan::PackedCatalog::Cursor at(files.catalog(), section.first_tensor);
       at.next() && at.number() < section.end_tensor;) {
    if (is_scale_name(at.name())) continue;
    const std::uint32_t file = files.file_of(at.number());
    const std::uint64_t bytes = is_paddle_code(section.name, at.name(), at.dtype())
                                    ? sizeof(float) * shard::elements_of(at.shape())
                                    : format::tensor_bytes(at.dtype(), at.shape(), at.name());
    if (is_paddle_code_of_both(section.name, at.name(), at.dtype())) {
      add(std::string(paddle_parameter_of(kOptimizer, at.name())) + std::string(kFirstMoment), file, bytes);
    }
    add(std::string(at.name()), file, bytes);
  }
  return {files.index_name(number), begin_paddle_index(index)};
}

}  // namespace

plan::LayoutOptions paddle_layout(const PaddlePackage& package, const FileOptions& files) {
  plan::LayoutOptions options{
      .max_file_bytes = files.max_bytes, .align_bytes = files.align_bytes, .metadata = files.metadata};
  options.metadata.insert_or_assign("format", "np");
  options.stems[std::string(kAdapter)] = "peft_model";
  options.metadata_of[std::string(kModel)] = options.metadata;
  options.metadata_of[std::string(kModel)].insert_or_assign("format", std::string(package.model_format));
  options.numbers_single_files = true;
  options.keeps_states_together = true;
  options.writes_codings = false;
  options.bf16_as_u16 = package.bf16_as_u16;
  options.index_of = paddle_index;
  return options;
}

std::optional<PaddleState> paddle_state_of(const StateToWrite& state) {
  const auto value = state.values.find(kPaddleValue);
  return value == state.values.end() ? std::nullopt : parse_paddle_state(value->second);
}

base::Json config_of(const StateToWrite& state) {
  if (!state.config) return base::Json::object();
  try {
    return base::Json::parse(*state.config, "config.json", {.dialect = base::JsonDialect::kPython});
  } catch (const Error& error) {
    if (!state.place.empty()) throw;
    throw Error(ErrorKind::kUsage,
                fmt::format("config.json that is to be carried along, by which PaddlePaddle's trainers "
                            "resume: {}",
                            error.what()));
  }
}

namespace {

/// The content of scheduler.pdparams, if the known values of the schedule suffice.
std::optional<std::string> scheduler_file(const std::string& text) {
  try {
    const base::Json state = base::Json::parse(text, "scheduler", {.dialect = base::JsonDialect::kPython});
    if (state.size() == 2 && state.contains("last_epoch") && state.contains("last_lr")) {
      return encode_scheduler(state.at("last_epoch").whole_number(), state.at("last_lr").real_number());
    }
  } catch (const Error&) {  // a user's value with the same name
  }
  return std::nullopt;
}

/// Adds the small files that the loader reads.
void add_small_files(const PaddlePackage& package, const PaddleFacts& facts, const StateToWrite& state,
                     FormFiles& files) {
  const auto is_carried = [&](std::string_view name) {
    return std::ranges::find(state.carried, name) != state.carried.end();
  };
  if (facts.stage == "O2") {
    files.notes.inform(
        fmt::format("{} cannot load moments of O2, its own neither (\"dictionary changed size during "
                    "iteration\"): for a resume take codec paddle-o1 or none",
                    package.name));
  }
  if (!facts.sections.contains(kOptimizer)) return;
  constexpr const char* kScheduler = "scheduler.pdparams";
  const auto scheduler = state.values.find("scheduler");
  if (const auto text = scheduler_file(scheduler == state.values.end() ? "" : scheduler->second);
      text && !is_carried(kScheduler)) {
    files.texts[kScheduler] = *text;
  } else if (!is_carried(kScheduler)) {
    files.notes.omit(
        fmt::format("nothing gives a {}: {} resumes only with ignore_load_lr_and_optim", kScheduler, package.name));
  }
  if (is_carried(package.trainer_state)) return;
  if (state.step) {
    files.texts[std::string(package.trainer_state)] = encode_trainer_state(package, *state.step);
  } else {
    files.notes.omit(fmt::format("nothing says the step of the source: {} begins to count at 0", package.name));
  }
}

/// The facts that the written checkpoint records.
PaddleState state_after(const PaddlePackage& package, const PaddleFacts& facts, const StateToWrite& state) {
  PaddleState after = paddle_state_of(state).value_or(PaddleState());
  const bool lost_codes = after.stage != "O0" && (!state.keeps_codes || facts.stage == "O0");
  after.linears_out_in = package.linears_out_in;
  after.stage = facts.stage;
  if (lost_codes) ++after.resume_times;
  after.masters_as_model = after.masters_as_model && !facts.sections.contains(kMasters) && facts.is_f32_model;
  return after;
}

}  // namespace

FormFiles paddle_files(const PaddlePackage& package, const PaddleFacts& facts,
                       std::map<std::string, std::string> indexes, const StateToWrite& state, std::uint64_t processes) {
  check_config(package, facts, config_of(state), processes);
  const PaddleState after = state_after(package, facts, state);
  FormFiles files;
  files.texts = std::move(indexes);
  for (auto& [name, text] : files.texts) {
    std::map<std::string, std::string> extra;
    if (name.starts_with("optimizer.")) {
      // PaddleFormers writes true even without master weights, and then cannot resume for lack of their index.
      extra["master_weights"] = facts.sections.contains(kMasters) || after.masters_as_model ? "true" : "false";
      extra["quant_ckpt_resume_times"] = std::to_string(after.resume_times);
      if (after.stage != "O0") extra["ckpt_quant_stage"] = '"' + after.stage + '"';
    }
    if (name.starts_with("peft_model.")) {
      const bool is_prefix = std::ranges::find(state.carried, "prefix_config.json") != state.carried.end();
      extra["type"] = is_prefix ? "\"ptuning\"" : "\"lora\"";
    }
    text += end_paddle_index(extra);
  }
  files.values[kPaddleValue] = encode_paddle_state(after);
  add_small_files(package, facts, state, files);
  return files;
}

}  // namespace cairn::interop
