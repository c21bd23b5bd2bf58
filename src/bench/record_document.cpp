// A record as JSON, and as CSV with one measurement per line, which any tool can pivot.
#include "bench/record_document.hpp"

#include <fmt/core.h>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::bench {
namespace {

using base::Json;

constexpr double kGiB = 1073741824.0;

Json host_json(const Host& host) {
  return {{"name", host.name},
          {"ranks", host.ranks},
          {"cores", host.cores},
          {"memory_bytes", host.memory_bytes},
          {"available_memory_bytes", host.free_memory_bytes}};
}

Json machine_json(const Record& record) {
  const Machine& machine = record.machine;
  Json out;
  out["hosts"] = Json::array_of(machine.hosts, host_json);
  out["ranks"] = record.ranks;
  out["processor"] = machine.processor;
  out["kernel"] = machine.kernel;
  out["file_system"] = {{"directory", record.directory},
                        {"type", machine.mount.type},
                        {"mount_point", machine.mount.point},
                        {"source", machine.mount.source},
                        {"options", machine.mount.options}};
  out["mpi_library"] = machine.mpi_library;
  out["tool"] = machine.tool;
  out["revision"] = machine.revision;
  out["compiler"] = machine.compiler;
  out["date"] = machine.date;
  out["job"] = machine.job.empty() ? Json(nullptr) : Json(machine.job);
  out["command_line"] = record.command_line;
  return out;
}

std::string read_back_name(ReadBack how) {
  switch (how) {
    case ReadBack::kOff: return "off";
    case ReadBack::kSample: return "sample";
    case ReadBack::kAll: return "all";
  }
  throw base::internal_error("unknown way of reading back");
}

Json options_json(const Record& record) {
  return {{"repeats", record.repeats},
          {"warm_up", record.warm_up},
          {"engine", record.engine_asked},
          {"aggregators_per_node", record.aggregators_per_node},
          {"memory_bytes", record.memory_budget_bytes},
          {"max_file_bytes", record.max_file_bytes},
          {"read_back", read_back_name(record.read_back)},
          {"raw_method", std::string(name_of(record.raw.method))},
          {"raw_request_bytes", record.raw.request_bytes},
          {"raw_requests_in_flight", record.raw.in_flight}};
}

Json phases_json(const Operation& operation) {
  return Json::array_of(phases_of(operation), [&](const std::string& phase) -> Json {
    return {{"name", phase},
            {"seconds_max", summary_json(phase_seconds(operation, phase))},
            {"seconds_min", summary_json(phase_first_seconds(operation, phase))},
            {"share", summary_json(phase_share(operation, phase))},
            {"size_bytes", phase_bytes(operation, phase)}};
  });
}

Json operation_json(const Operation& operation) {
  Json out;
  out["operation"] = std::string(name_of(operation.kind));
  out["ranks"] = operation.ranks;
  out["layout"] = operation.layout;
  out["engine"] = operation.engine;
  out["engine_reason"] = operation.engine_reason;
  out["engine_hints"] = operation.engine_hints;
  out["size_bytes"] = operation.bytes;
  out["checkpointer_kept"] = operation.checkpointer_kept;
  out["tensors"] = operation.tensors;
  out["files"] = operation.files;
  if (operation.kind == Kind::kSave) {
    out["durable"] = true;
    out["plan_reused"] = operation.plan_reused;
  } else {
    out["delivered_bytes"] = operation.delivered_bytes;
    std::vector<double> shares;
    for (const Sample& sample : operation.samples) shares.push_back(sample.cached_share);
    out["cache"] = {
        {"state", operation.cache},
        {"dropped_by", operation.cache_drop_all ? "posix_fadvise, /proc/sys/vm/drop_caches" : "posix_fadvise"},
        {"cached_share", summary_json(summarise(shares))}};
  }
  out["verified"] = {{"by", operation.verified_by}, {"size_bytes", operation.verified_bytes}};
  out["seconds_max"] = summary_json(seconds_of(operation));
  out["seconds_min"] = summary_json(first_seconds_of(operation));
  out["gib_per_s"] = summary_json(rate_of(operation), kGiB);
  out["ceiling"] = {{"method", operation.ceiling_method},
                    {"gib_per_s", summary_json(ceiling_of(operation), kGiB)},
                    {"copied_gib_per_s", summary_json(copied_ceiling_of(operation), kGiB)}};
  out["processors_busy"] = {{"operation", summary_json(busy_of(operation))},
                            {"ceiling", summary_json(ceiling_busy_of(operation))}};
  out["share_of_ceiling"] = summary_json(share_of_ceiling(operation));
  out["share_of_copied_ceiling"] = summary_json(share_of_copied_ceiling(operation));
  out["phases"] = phases_json(operation);
  return out;
}

Json rates_json(const std::vector<Rate>& rates) {
  if (rates.empty()) return nullptr;
  Json out = summary_json(rates_of(rates), kGiB);
  out["size_bytes"] = rates.front().bytes;
  return out;
}

constexpr const char* kColumns =
    "record_version,workload,operation,ranks,layout,engine,repeat,part,seconds_max,seconds_min,size_bytes,gib_per_s,"
    "share_of_ceiling,cache,cached_share,verified_bytes\n";

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  return out + "\"";
}

struct Line {
  std::string operation;
  int ranks = 0;
  std::string layout;
  std::string engine;
  std::size_t repeat = 0;
  std::string part;
  Rate rate;
  std::string rest = ",,,";  // share_of_ceiling, cache, cached_share, verified_bytes
};

std::string text_of(const Line& line, const std::string& workload) {
  const double rate = line.rate.bytes_per_second() / kGiB;
  return fmt::format("{},{},{},{},{},{},{},{},{:.6f},{:.6f},{},{},{}\n", kRecordVersion, field(workload),
                     line.operation, line.ranks, field(line.layout), line.engine, line.repeat, field(line.part),
                     line.rate.seconds, line.rate.seconds_first, line.rate.bytes,
                     rate > 0 ? fmt::format("{:.6f}", rate) : "", line.rest);
}

void add_sample(const Operation& operation, std::size_t repeat, const std::string& workload, std::string& out) {
  const Sample& sample = operation.samples[repeat - 1];
  const bool is_load = operation.kind == Kind::kLoad;
  Line line{std::string(name_of(operation.kind)), operation.ranks, operation.layout, operation.engine, repeat, "", {}};
  line.part = "ceiling before";
  line.rate = sample.ceiling_before;
  out += text_of(line, workload);
  line.part = "total";
  line.rate = {operation.bytes, sample.seconds, sample.seconds_first, sample.busy_share};
  line.rest = fmt::format("{:.6f},{},{},{}", share_of_ceiling(operation, sample), is_load ? operation.cache : "",
                          is_load ? fmt::format("{:.6f}", sample.cached_share) : "", operation.verified_bytes);
  out += text_of(line, workload);
  line.rest = ",,,";
  for (const Phase& phase : sample.phases) {
    line.part = "phase " + phase.name;
    line.rate = {phase.bytes, phase.seconds_max, phase.seconds_min, 0};
    out += text_of(line, workload);
  }
  line.part = "ceiling after";
  line.rate = sample.ceiling_after;
  out += text_of(line, workload);
  line.part = "copied ceiling";
  line.rate = sample.copied_ceiling;
  out += text_of(line, workload);
}

void add_rates(const char* name, const std::vector<Rate>& rates, int ranks, std::string& out) {
  for (std::size_t i = 0; i < rates.size(); ++i) {
    Line line{"memory ceiling", ranks, "", "", i + 1, name, rates[i]};
    out += text_of(line, "");
  }
}

}  // namespace

Json summary_json(const Summary& summary, double unit) {
  std::vector<double> values = summary.values;
  for (double& value : values) value /= unit;
  return {
      {"median", summary.median / unit}, {"min", summary.min / unit}, {"max", summary.max / unit}, {"values", values}};
}

Json record_json(const Record& record) {
  Json out;
  out["record_version"] = kRecordVersion;
  out["machine"] = machine_json(record);
  out["options"] = options_json(record);
  out["memory_ceilings_gib_per_s"] = {{"memcpy", rates_json(record.memory.memcpy)},
                                      {"crc32c", rates_json(record.memory.crc)},
                                      {"exchange", rates_json(record.memory.exchange)}};
  out["runs"] = Json::array_of(record.runs, [](const Run& run) {
    Json row;
    row["workload"] = run.workload;
    row["note"] = run.note;
    row["sections"] = run.sections;
    row["size_bytes"] = run.save.bytes;
    row["save"] = operation_json(run.save);
    row["loads"] = Json::array_of(run.loads, operation_json);
    return row;
  });
  return out;
}

std::string record_csv(const Record& record) {
  std::string out = kColumns;
  const int ranks = record.runs.empty() ? record.ranks : record.runs.front().save.ranks;
  add_rates("memcpy", record.memory.memcpy, ranks, out);
  add_rates("crc32c", record.memory.crc, ranks, out);
  add_rates("exchange", record.memory.exchange, ranks, out);
  for (const Run& run : record.runs) {
    for (const Operation* one : operations_of(run)) {
      for (std::size_t r = 1; r <= one->samples.size(); ++r) add_sample(*one, r, run.workload, out);
    }
  }
  return out;
}

}  // namespace cairn::bench
