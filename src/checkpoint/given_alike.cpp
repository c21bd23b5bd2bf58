#include "checkpoint/given_alike.hpp"

#include <fmt/core.h>

#include <map>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/fault.hpp"

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
      {"engine", options.engine},
      {"max_file_bytes", text_of(options.max_file_bytes)},
      {"align_bytes", text_of(options.align_bytes)},
      {"block_bytes", text_of(options.block_bytes)},
      {"memory_budget_bytes", text_of(options.memory_budget_bytes)},
      {"aggregators_per_node", text_of(options.aggregators_per_node)},
      {"hints", text_of(options.hints)},
      {"file_metadata", text_of(options.file_metadata)},
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

}  // namespace cairn::checkpoint
