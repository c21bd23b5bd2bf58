// A record with known numbers.
#pragma once

#include "bench/record.hpp"

namespace cairn::bench {

inline constexpr std::uint64_t kTestGiB = 1ULL << 30;

inline Sample sample_of(double seconds, double ceiling_before_seconds, double ceiling_after_seconds) {
  Sample sample;
  sample.seconds = seconds;
  sample.seconds_first = seconds / 2;
  sample.busy_share = 1 / seconds;
  sample.phases = {{"plan", 0.1, 0.05, 0}, {"write", seconds * 0.75, seconds * 0.25, 2 * kTestGiB}};
  sample.ceiling_before = {2 * kTestGiB, ceiling_before_seconds, ceiling_before_seconds, 0.25};
  sample.ceiling_after = {2 * kTestGiB, ceiling_after_seconds, ceiling_after_seconds, 0.75};
  sample.copied_ceiling = {2 * kTestGiB, seconds * 0.8, seconds * 0.8, 0.5};
  return sample;
}

inline Operation operation_of(Kind kind) {
  Operation operation;
  operation.kind = kind;
  operation.ranks = 4;
  operation.layout = "tp=2,pp=2";
  operation.engine = "mpiio";
  operation.engine_reason = "asked for";
  operation.engine_hints = {{"cb_nodes", "4"}, {"romio_cb_write", "<disable>"}};
  operation.cache = "dropped";
  operation.bytes = 2 * kTestGiB;
  operation.verified_bytes = 2 * kTestGiB;
  operation.samples = {sample_of(4, 1, 1), sample_of(2, 0.5, 1), sample_of(8, 2, 2)};
  return operation;
}

inline Record sample_record() {
  Record record;
  record.machine.hosts = {{"node<1>", 4, 2, 24 * kTestGiB, 20 * kTestGiB}};
  record.machine.mount = {"ext4", "/", "/dev/vda", "rw"};
  record.command_line = "cairn bench --model \"a & b\" --dir <x>";
  record.ranks = 4;
  record.repeats = 3;
  record.warm_up = 1;
  record.read_back = ReadBack::kSample;
  record.memory.memcpy = {{kTestGiB, 0.5, 0.5, 1}};
  record.memory.crc = {{kTestGiB, 0.25, 0.25, 1}};
  Run run;
  run.workload = "size, \"small\"";
  run.sections = "all";
  run.save = operation_of(Kind::kSave);
  run.loads = {operation_of(Kind::kLoad)};
  record.runs = {run, run};
  record.runs[1].save.bytes = kTestGiB;
  return record;
}

}  // namespace cairn::bench
