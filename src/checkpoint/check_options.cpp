#include "checkpoint/check_options.hpp"

#include <fmt/core.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/environment.hpp"
#include "checkpoint/part.hpp"
#include "codes/elided.hpp"
#include "comm/agree.hpp"
#include "interop/form.hpp"
#include "io/engine.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "planning/save_limits.hpp"
#include "quant/codec.hpp"
#include "root/retention.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

void check_quantisation(const Quantisation& options) {
  for (const auto& [section, codec] : options.codecs) {
    if (codec != "off") (void)quant::find_codec(codec);
  }
  codes::check_elided(options);
  if (std::isfinite(options.max_update_error) && options.max_update_error >= 0) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("Options::quantisation.max_update_error is {}; give a positive number, or 0 for no limit",
                          options.max_update_error));
}

void check_environment(const EnvironmentOptions& options) {
  if (options.command_line && !options.record) {
    throw Error(ErrorKind::kUsage,
                "Options::environment.command_line has no effect without Options::environment.record");
  }
  planning::check_texts(options.values, "Options::environment.values");
  planning::check_texts({{"git_revision", options.git_revision}}, "Options::environment");
  std::uint64_t bytes = options.git_revision.size();
  for (const auto& [key, value] : options.values) bytes += key.size() + value.size();
  if (bytes <= kEnvironmentTextBytes) return;
  throw Error(ErrorKind::kUsage, fmt::format("Options::environment has texts of {} bytes, above the limit of {}; carry "
                                             "long ones as files (Extras::carry_texts)",
                                             bytes, kEnvironmentTextBytes));
}

}  // namespace

void check_options(const Options& options) {
  if (options.engine.name != "auto") io::check_engine_name(options.engine.name);
  planning::check_file_options(options.files);
  planning::check_run_id(options.run_id);
  planning::check_texts(options.engine.hints, "Options::engine.hints");
  check_quantisation(options.quantisation);
  interop::form_of_save(options.files.form).check_options(options.quantisation, 0);
  for (const Selection& selection : options.frozen) const shard::Selector selector(selection);
  check_part(options);
  if (options.reuse != Reuse::kNever && options.frozen.empty())
    throw Error(ErrorKind::kUsage, "Options::reuse takes files of frozen tensors, and Options::frozen selects none");
  if (options.reuse == Reuse::kNever && options.reuse_step)
    throw Error(ErrorKind::kUsage, "Options::reuse_step has no effect without Options::reuse");
  if (!options.async.cores.empty()) (void)os::cores_of(options.async.cores);
  root::check_retention(options.retention);
  if (options.retention.prune_before && options.retention.empty()) {
    throw Error(ErrorKind::kUsage, "Retention::prune_before is set without a rule, so nothing would go; give a rule");
  }
  if (options.retention.prune_before && !options.preflight) {
    throw Error(ErrorKind::kUsage,
                "Retention::prune_before needs Options::preflight, which finds out whether room is short");
  }
  check_environment(options.environment);
}

namespace {

std::string text_of(const std::map<std::string, std::string>& map) {
  std::string text;
  for (const auto& [key, value] : map) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, value);
  return text;
}

std::string text_of(const std::vector<std::string>& texts) {
  return texts.empty() ? "all" : fmt::format("{} patterns: {}", texts.size(), base::joined(texts));
}

std::string text_of(const std::vector<Selection>& selections) {
  std::string text = fmt::format("{} selections", selections.size());
  for (const Selection& one : selections) {
    text += fmt::format(": sections {}, names {}", text_of(one.sections), text_of(one.names));
  }
  return text;
}

std::string text_of(const Retention& retention) {
  const auto number = [](const std::optional<std::uint64_t>& given) {
    return given ? fmt::format("{}", *given) : std::string("unset");
  };
  std::string text = fmt::format("last {}, every {}, steps {}", number(retention.keep_last),
                                 number(retention.keep_every), base::joined(retention.keep_steps));
  for (const BestBy& rule : retention.keep_best) {
    text += fmt::format(", best {} by {} ({})", rule.keep, rule.metric, rule.best == Best::kMin ? "min" : "max");
  }
  return text + (retention.keep_by_age ? ", by age" : "") + (retention.prune_before ? ", before a save" : "");
}

std::string text_of(const std::optional<BaseCheckpoint>& base) {
  if (!base) return "unset";
  return fmt::format("step {}, path {}, identity {}", base->step ? fmt::format("{}", *base->step) : "unset", base->path,
                     base->identity);
}

std::string text_of(bool flag) { return flag ? "true" : "false"; }

template <class Number>
std::string text_of(Number number) {
  return fmt::format("{}", number);
}

/// Every field of Options except the callbacks: add new fields here.
std::vector<comm::NamedValue> values_of(const Options& options, std::span<const std::filesystem::path> where,
                                        Sight sight) {
  const Quantisation& quantisation = options.quantisation;
  std::vector<std::string> paths;
  if (sight == Sight::kAllRanks) {
    for (const std::filesystem::path& path : where)
      paths.push_back(os::absolute_path(path).lexically_normal().string());
  }
  return {
      {"sight", text_of(static_cast<int>(sight))},
      {"path", base::joined(paths)},
      {"engine.name", options.engine.name},
      {"files.max_bytes", text_of(options.files.max_bytes)},
      {"files.align_bytes", text_of(options.files.align_bytes)},
      {"files.block_bytes", text_of(options.files.block_bytes)},
      {"limits.memory_budget_bytes", text_of(options.limits.memory_budget_bytes)},
      {"engine.aggregators_per_node", text_of(options.engine.aggregators_per_node)},
      {"engine.hints", text_of(options.engine.hints)},
      {"files.metadata", text_of(options.files.metadata)},
      {"files.form", options.files.form},
      {"files.mode", options.files.mode ? fmt::format("0{:o}", *options.files.mode) : "unset"},
      {"files.group", options.files.group},
      {"run_id", options.run_id},
      {"allow_other_run", text_of(options.allow_other_run)},
      {"quantisation.codecs", text_of(quantisation.codecs)},
      {"quantisation.disable_ckpt_quant", text_of(quantisation.disable_ckpt_quant)},
      {"quantisation.max_update_error", text_of(quantisation.max_update_error)},
      {"quantisation.report", text_of(quantisation.report)},
      {"quantisation.remove_master_weight", text_of(quantisation.remove_master_weight)},
      {"quantisation.skip_save_model_weight", text_of(quantisation.skip_save_model_weight)},
      {"quantisation.master_weight_compatible", text_of(quantisation.master_weight_compatible)},
      {"quantisation.decode_by_reciprocals", text_of(quantisation.decode_by_reciprocals)},
      {"overwrite", text_of(options.overwrite)},
      {"overwrite_foreign", text_of(options.overwrite_foreign)},
      {"read_back", text_of(static_cast<int>(options.read_back))},
      {"retention", text_of(options.retention)},
      {"follow_links", text_of(options.follow_links)},
      {"trust_index", text_of(options.trust_index)},
      {"async.when_busy", text_of(static_cast<int>(options.async.when_busy))},
      {"async.max_snapshot_bytes",
       options.async.max_snapshot_bytes ? text_of(*options.async.max_snapshot_bytes) : "unset"},
      {"async.max_bytes_per_s", text_of(options.async.max_bytes_per_s)},
      {"async.cores", options.async.cores},
      {"lease.seconds", text_of(options.lease.seconds)},
      {"lease.wait_seconds", options.lease.wait_seconds ? text_of(*options.lease.wait_seconds) : "unset"},
      {"checks.replicas", text_of(static_cast<int>(options.checks.replicas))},
      {"checks.replicas_differ", text_of(static_cast<int>(options.checks.replicas_differ))},
      {"checks.stale", text_of(static_cast<int>(options.checks.stale))},
      {"checks.non_finite", text_of(static_cast<int>(options.checks.non_finite))},
      {"frozen", text_of(options.frozen)},
      {"reuse", text_of(static_cast<int>(options.reuse))},
      {"reuse_step", options.reuse_step ? text_of(*options.reuse_step) : "unset"},
      {"save_only", text_of(options.save_only)},
      {"no_save_optim", text_of(options.no_save_optim)},
      {"base", text_of(options.base)},
      {"run_log", text_of(options.run_log)},
      {"preflight", text_of(options.preflight)},
      {"environment.record", text_of(options.environment.record)},
      {"environment.command_line", text_of(options.environment.command_line)},
      {"environment.git_revision", options.environment.git_revision},
      {"environment.values", text_of(options.environment.values)},
      {"waiting.limit_s", text_of(options.waiting.limit_s)},
      {"waiting.then", text_of(static_cast<int>(options.waiting.then))},
  };
}

}  // namespace

void agree_on_options(comm::Communicator& communicator, const Options& options,
                      std::span<const std::filesystem::path> where, Sight sight) {
  comm::agree_on_values(communicator, "option",
                        [&](std::vector<comm::NamedValue>& values) { values = values_of(options, where, sight); });
}

void agree_on_load_options(comm::Communicator& communicator, const LoadOptions& options) {
  comm::agree_on_values(communicator, "load option", [&](std::vector<comm::NamedValue>& values) {
    values = {{"select.sections", text_of(options.select.sections)},
              {"select.names", text_of(options.select.names)},
              {"list_not_loaded", text_of(options.list_not_loaded)},
              {"no_load_optim", text_of(options.no_load_optim)},
              {"parts", text_of(options.parts)},
              {"cast_floats", text_of(options.cast_floats)},
              {"pad_rows", text_of(options.pad_rows)}};
  });
}

}  // namespace cairn::checkpoint
