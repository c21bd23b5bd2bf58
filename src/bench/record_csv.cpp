// The record as CSV: long form, so that any tool can pivot it.
#include <fmt/core.h>

#include "bench/record_document.hpp"

namespace cairn::bench {
namespace {

constexpr double kGiB = 1073741824.0;
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

std::string record_csv(const Record& record) {
  std::string out = kColumns;
  const int ranks = record.runs.empty() ? record.ranks : record.runs.front().save.ranks;
  add_rates("memcpy", record.memory.memcpy, ranks, out);
  add_rates("crc32c", record.memory.crc, ranks, out);
  add_rates("exchange", record.memory.exchange, ranks, out);
  for (const Run& run : record.runs) {
    for (std::size_t r = 1; r <= run.save.samples.size(); ++r) add_sample(run.save, r, run.workload, out);
    for (const Operation& load : run.loads) {
      for (std::size_t r = 1; r <= load.samples.size(); ++r) add_sample(load, r, run.workload, out);
    }
  }
  return out;
}

}  // namespace cairn::bench
