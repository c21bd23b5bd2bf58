#include "checkpoint/targets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "format/safetensors.hpp"
#include "os/fault.hpp"
#include "plan/catalog.hpp"
#include "planning/describe.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

std::string text_of(const std::map<std::string, std::string>& map) {
  std::string text;
  for (const auto& [key, value] : map) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, value);
  return text;
}

std::string text_of(bool flag) { return flag ? "true" : "false"; }

template <class Number>
std::string text_of(Number number) {
  return fmt::format("{}", number);
}

/// Every field of Options: what is added there is added here.
std::vector<comm::NamedValue> values_of(const Options& options, const std::filesystem::path& path) {
  const Quantisation& quantisation = options.quantisation;
  return {
      {"path", path.lexically_normal().string()},
      {"engine.name", options.engine.name},
      {"files.max_bytes", text_of(options.files.max_bytes)},
      {"files.align_bytes", text_of(options.files.align_bytes)},
      {"files.block_bytes", text_of(options.files.block_bytes)},
      {"limits.memory_budget_bytes", text_of(options.limits.memory_budget_bytes)},
      {"engine.aggregators_per_node", text_of(options.engine.aggregators_per_node)},
      {"engine.hints", text_of(options.engine.hints)},
      {"files.metadata", text_of(options.files.metadata)},
      {"files.mode", options.files.mode ? fmt::format("0{:o}", *options.files.mode) : "unset"},
      {"files.group", options.files.group},
      {"run_id", options.run_id},
      {"quantisation.codecs", text_of(quantisation.codecs)},
      {"quantisation.disable_ckpt_quant", text_of(quantisation.disable_ckpt_quant)},
      {"quantisation.max_update_error", text_of(quantisation.max_update_error)},
      {"quantisation.report", text_of(quantisation.report)},
      {"quantisation.remove_master_weight", text_of(quantisation.remove_master_weight)},
      {"quantisation.skip_save_model_weight", text_of(quantisation.skip_save_model_weight)},
      {"quantisation.master_weight_compatible", text_of(quantisation.master_weight_compatible)},
      {"quantisation.paddle_reciprocals", text_of(quantisation.paddle_reciprocals)},
      {"overwrite", text_of(options.overwrite)},
      {"read_back", text_of(static_cast<int>(options.read_back))},
      {"follow_links", text_of(options.follow_links)},
      {"lease.seconds", text_of(options.lease.seconds)},
      {"lease.wait_seconds", options.lease.wait_seconds ? text_of(*options.lease.wait_seconds) : "unset"},
      {"waiting.limit_s", text_of(options.waiting.limit_s)},
      {"waiting.then", text_of(static_cast<int>(options.waiting.then))},
  };
}

}  // namespace

std::unique_ptr<comm::Communicator> watched_communicator(MPI_Comm given, const Options& options) {
  auto communicator = comm::duplicate_mpi(given, options.waiting);
  comm::agree(*communicator, "name the rank in the log", [&] {
    os::set_fault_rank(communicator->rank());
    base::set_log_rank(communicator->rank(), communicator->size());
  });
  return communicator;
}

void agree_on_options(comm::Communicator& communicator, const Options& options, const std::filesystem::path& path) {
  comm::agree_on_values(communicator, "option",
                        [&](std::vector<comm::NamedValue>& values) { values = values_of(options, path); });
}

namespace {

bool is_of_type(const ViewTensor& tensor, const Target& target) {
  return tensor.dtype == target.dtype && std::ranges::equal(tensor.shape, target.shape);
}

/// A part of the target's name and type, else the tensor of the view that has the name, else the part that has it.
std::optional<std::uint32_t> number_of(const View& view, const plan::NumbersByName& numbers,
                                       const plan::NumbersByName& parts, const Target& target) {
  const auto at = numbers.find({target.section, target.name});
  const auto part = parts.find({target.section, target.name});
  if (part != parts.end() && (at == numbers.end() || is_of_type(view.at(part->second), target))) return part->second;
  if (at == numbers.end()) return std::nullopt;
  return at->second;
}

}  // namespace

std::vector<plan::MemoryBox> wanted_boxes(const OpenCheckpoint& opened, const View& view,
                                          std::span<const Target> targets) {
  const plan::NumbersByName numbers = plan::numbers_by_name(view.tensors);
  plan::NumbersByName parts = plan::numbers_by_name(view.parts);
  for (auto& [key, number] : parts) number += static_cast<std::uint32_t>(view.tensors.size());
  const std::string shown = base::printable(opened.directory.string());
  std::vector<std::uint32_t> number_of_target;
  for (const Target& target : targets) {
    const std::optional<std::uint32_t> number = number_of(view, numbers, parts, target);
    if (!number) {
      throw Error(ErrorKind::kNotFound, fmt::format("'{}' has no tensor '{}' in section {}", shown,
                                                    base::printable(target.name), base::printable(target.section)));
    }
    const ViewTensor& stored = view.at(*number);
    if (!is_of_type(stored, target)) {
      throw Error(ErrorKind::kState,
                  fmt::format("'{}': tensor '{}' (section {}) is {} [{}], expected {} [{}]", shown,
                              base::printable(target.name), base::printable(target.section), name_of(stored.dtype),
                              base::joined(stored.shape), name_of(target.dtype), base::joined(target.shape)));
    }
    number_of_target.push_back(*number);
  }
  std::vector<plan::MemoryBox> wanted = memory_boxes(targets);
  for (plan::MemoryBox& box : wanted) box.tensor = number_of_target[box.tensor];
  return wanted;
}

ReadOptions read_options(const Options& options) {
  return {options.engine.name, options.limits.memory_budget_bytes, options.engine.hints,
          options.engine.aggregators_per_node, links_of(options.follow_links)};
}

View view_to_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const Options& options) {
  View view;
  comm::agree(communicator, "describe what to load", [&] { view = decoded_view(opened, view_options(options)); });
  return view;
}

Report load_targets(comm::Communicator& communicator, const OpenCheckpoint& opened, std::span<const Target> targets,
                    const View& view, TensorReader& reader, const PhaseClock& whole) {
  std::vector<plan::MemoryBox> wanted;
  comm::agree(communicator, "describe what to load", [&] {
    check_shards(targets);
    wanted = wanted_boxes(opened, view, targets);
  });
  reader.load(wanted);

  Report report = report_of_load(communicator, opened, reader.engine(), targets);
  report.phases = reader.clock().reduce(communicator);
  report.seconds = whole.slowest_seconds(communicator);
  return report;
}

Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine) {
  Report report;
  report.engine = engine.name;
  report.engine_reason = engine.reason;
  report.engine_hints = engine.hints;
  report.tensors = written.tensors.size();
  report.files = written.files.size();
  for (const auto& tensor : written.tensors) {
    report.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
  }
  return report;
}

Report report_of_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const EngineChoice& engine,
                      std::span<const Target> targets) {
  Report report;
  comm::agree(communicator, "report", [&] {
    report.directory = opened.directory;
    report.engine = engine.name;
    report.engine_reason = engine.reason;
    report.engine_hints = engine.hints;
    report.warnings = opened.warnings;
  });
  report.files = opened.stored.files.size();
  report.tensors = communicator.max(targets.size());
  std::uint64_t bytes = 0;
  for (const Target& target : targets) bytes += shard::elements_of(target.boxes) * bits_of(target.dtype) / 8;
  report.bytes = communicator.sum(bytes);
  return report;
}

}  // namespace cairn::checkpoint
