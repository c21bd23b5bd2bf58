#include "interop/paddle/files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <string_view>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "interop/dialect.hpp"
#include "interop/paddle/paddle.hpp"
#include "plan/hf_layout.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {


constexpr std::string_view kModel = "model";
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";
constexpr std::string_view kAdapter = "adapter";

/// An index is of what was coded: no scales, both moments, and their bytes in F32.
plan::IndexFile paddle_index(const plan::HfLayout& files, std::size_t number) {
  const plan::HfLayout::Section& section = files.section(number);
  PaddleIndex index;
  std::deque<std::string> names;                   // the index leads into them
  std::map<std::uint32_t, std::uint32_t> numbers;  // of the layout's files in the index
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

const PaddlePackage* package_of_form(std::string_view form) {
  if (form.empty() || form == "hf") return nullptr;
  if (const PaddlePackage* package = paddle_package(form)) return package;
  std::vector<std::string> words = form_words();
  std::erase_if(words, [](const std::string& word) { return form_called(word).is_sharded; });
  throw Error(ErrorKind::kUsage,
              fmt::format("no save writes files in the form '{}' (Options::files.form); there are {}",
                          base::printable(form), base::joined(words)));
}

plan::LayoutOptions layout_of_save(const FileOptions& files) {
  const PaddlePackage* package = package_of_form(files.form);
  if (package != nullptr) return paddle_layout(*package, files);
  return {files.max_bytes, files.align_bytes, files.metadata, {}};
}

plan::LayoutOptions paddle_layout(const PaddlePackage& package, const FileOptions& files) {
  plan::LayoutOptions options{files.max_bytes, files.align_bytes, files.metadata, {}};
  options.metadata.insert_or_assign("format", "np");
  plan::LayoutOptions::Habits& habits = options.habits;
  habits.stems[std::string(kAdapter)] = "peft_model";
  habits.metadata[std::string(kModel)] = options.metadata;
  habits.metadata[std::string(kModel)].insert_or_assign("format", std::string(package.model_format));
  habits.numbers_single_files = true;
  habits.keeps_states_together = true;
  habits.writes_codings = false;
  habits.bf16_as_u16 = package.bf16_as_u16;
  habits.index_of = paddle_index;
  return options;
}

void check_paddle_quantisation(const PaddlePackage& package, const Quantisation& quantisation) {
  for (const auto& [section, codec] : quantisation.codecs) {
    if (quantisation.disable_ckpt_quant || codec == "off") continue;
    if (codec != "paddle-o1" && codec != "paddle-o2") {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} reads no moments in {}: give paddle-o1, paddle-o2 or off, or leave the codec out",
                              package.name, base::printable(codec)));
    }
    if (section == kOptimizer) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("{} reads codes in section optimizer alone: give no codec for section {}", package.name,
                            base::printable(section)));
  }
  if (!quantisation.remove_master_weight && !quantisation.skip_save_model_weight) return;
  throw Error(ErrorKind::kUsage, fmt::format("{}'s files are written with all weights: leave remove_master_weight and "
                                             "skip_save_model_weight out",
                                             package.name));
}

namespace {

/// Of what is known of the schedule, if that is enough.
std::optional<std::string> scheduler_file(const std::string& text) {
  try {
    const base::Json state = base::Json::parse(text, "scheduler");
    if (state.size() == 2 && state.contains("last_epoch") && state.contains("last_lr")) {
      return encode_scheduler(state.at("last_epoch").whole_number(), state.at("last_lr").real_number());
    }
  } catch (const Error&) {  // a user's own value of that name, or none
  }
  return std::nullopt;
}

/// What the loader wants besides tensors.
void add_small_files(const PaddlePackage& package, const PaddleFacts& facts, const PaddleBeside& beside,
                     PaddleFiles& files) {
  const auto is_carried = [&](std::string_view name) {
    return std::ranges::find(beside.carried, name) != beside.carried.end();
  };
  if (facts.stage == "O2") {
    files.notes.push_back(
        fmt::format("{} cannot load moments of O2, its own neither (\"dictionary changed size during "
                    "iteration\"): for a resume take codec paddle-o1 or none",
                    package.name));
  }
  if (std::string problem = problem_of_adam(package, facts); !problem.empty())
    files.notes.push_back(std::move(problem));
  if (!facts.sections.contains(kOptimizer)) return;
  constexpr const char* kScheduler = "scheduler.pdparams";
  if (const auto text = scheduler_file(beside.scheduler); text && !is_carried(kScheduler)) {
    files.texts[kScheduler] = *text;
  } else if (!is_carried(kScheduler)) {
    files.notes.push_back(
        fmt::format("nothing gives a {}: {} resumes only with ignore_load_lr_and_optim", kScheduler, package.name));
  }
  if (is_carried(package.trainer_state)) return;
  if (beside.step) {
    files.texts[std::string(package.trainer_state)] = encode_trainer_state(package, *beside.step);
  } else {
    files.notes.push_back(fmt::format("nothing says the step of the source: {} begins to count at 0", package.name));
  }
}

PaddleState state_of(const PaddlePackage& package, const PaddleFacts& facts, const PaddleBeside& beside) {
  PaddleState state = beside.found;
  state.linears_out_in = package.linears_out_in;
  state.stage = facts.stage;
  if (beside.lost_codes) ++state.resume_times;  // it has lost what coding loses
  state.masters_as_model = beside.found.masters_as_model && !facts.sections.contains(kMasters) && facts.is_f32_model;
  return state;
}

}  // namespace

PaddleFiles paddle_files(const PaddlePackage& package, const PaddleFacts& facts,
                         std::map<std::string, std::string> indexes, const PaddleBeside& beside) {
  check_config(package, facts, beside.config, beside.cards);
  const PaddleState state = state_of(package, facts, beside);
  PaddleFiles files;
  files.texts = std::move(indexes);
  for (auto& [name, text] : files.texts) {
    std::map<std::string, std::string> extra;
    if (name.starts_with("optimizer.")) {
      // PaddleFormers writes true even without them, and then looks for their index in vain.
      extra["master_weights"] = facts.sections.contains(kMasters) || state.masters_as_model ? "true" : "false";
      extra["quant_ckpt_resume_times"] = std::to_string(state.resume_times);
      if (state.stage != "O0") extra["ckpt_quant_stage"] = '"' + state.stage + '"';
    }
    if (name.starts_with("peft_model.")) {
      const bool is_prefix = std::ranges::find(beside.carried, "prefix_config.json") != beside.carried.end();
      extra["type"] = is_prefix ? "\"ptuning\"" : "\"lora\"";
    }
    text += end_paddle_index(extra);
  }
  files.state = encode_paddle_state(state);
  add_small_files(package, facts, beside, files);
  return files;
}

}  // namespace cairn::interop
