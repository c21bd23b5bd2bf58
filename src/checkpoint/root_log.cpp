#include "checkpoint/root_log.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "checkpoint/preflight.hpp"
#include "checkpoint/save.hpp"
#include "root/root.hpp"

namespace cairn::checkpoint {
namespace {

std::uint64_t ranks_of(const comm::Communicator& communicator) {
  return static_cast<std::uint64_t>(communicator.size());
}

std::uint64_t nodes_of(const comm::Communicator& communicator) {
  std::set<std::string_view> hosts;
  for (int rank = 0; rank < communicator.size(); ++rank) hosts.insert(communicator.host_of(rank));
  return hosts.size();
}

void add_report(const Report& report, format::LogCall& call) {
  call.seconds = report.seconds;
  for (const Phase& phase : report.phases) call.phases.emplace_back(phase.name, phase.seconds_max);
  call.bytes = report.bytes;
  call.files = report.files;
  call.reused_bytes = report.reused_bytes;
  call.engine = report.engine;
  for (const SkippedStep& one : report.skipped) call.skipped.push_back(one.step);
  if (!report.stall) return;
  call.is_async = true;
  call.stall_seconds = report.stall->seconds;
  call.wait_seconds = report.stall->wait_seconds;
  call.background_seconds = std::max(0.0, report.seconds - report.stall->seconds);
}

void add_result(const VerifyResult& result, format::LogCall& call) {
  call.outcome = result.faults.empty() ? format::kLogGood : format::kLogFailed;
  if (!result.faults.empty()) {
    call.error_kind = word_of(ErrorKind::kIntegrity);
    call.error = result.faults.front().message;
  }
  call.seconds = result.seconds;
  for (const Phase& phase : result.phases) call.phases.emplace_back(phase.name, phase.seconds_max);
  call.bytes = result.bytes;
  call.files = result.files;
  call.faults = result.faults.size();
  if (!result.position_bytes || !result.faults.empty()) return;
  call.what = format::kLogScrub;
  call.position_bytes = *result.position_bytes;
  call.manifest = fmt::format("{:08x}", result.manifest_crc32c);
}

/// Rank-local: on rank 0, adds a line with what describe(call) sets, if `path` is that of a step in a root.
template <class Describe>
void log_verification(const comm::Communicator& communicator, const std::filesystem::path& path,
                      Describe describe) noexcept {
  if (communicator.rank() != 0) return;
  try {
    const std::filesystem::path checkpoint = path.has_filename() ? path : path.parent_path();
    const auto name = root::parse_root_name(checkpoint.filename().native());
    if (!name || name->kind != root::RootName::Kind::kCheckpoint) return;
    format::LogCall call;
    call.what = format::kLogVerify;
    call.step = name->step;
    call.ranks = ranks_of(communicator);
    call.nodes = nodes_of(communicator);
    describe(call);
    const std::filesystem::path parent = checkpoint.parent_path();
    root::RunLog(parent.empty() ? "." : parent).append(std::move(call));
  } catch (const std::exception&) {  // without memory for a line, there is none
  }
}

void add_life(const RootLife& life, format::LogCall& call) {
  call.run_id = life.run_id;
  call.codecs = life.codecs;
  if (life.codecs.empty() || call.bytes == 0) return;
  call.ratio = static_cast<double>(call.bytes + life.spared_bytes) / static_cast<double>(call.bytes);
}

}  // namespace

const char* word_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage: return "usage";
    case ErrorKind::kState: return "state";
    case ErrorKind::kFormat: return "format";
    case ErrorKind::kNotFound: return "not_found";
    case ErrorKind::kIo: return "io";
    case ErrorKind::kIntegrity: return "integrity";
    case ErrorKind::kInternal: return "internal";
  }
  return "internal";
}

const char* outcome_of(const Error& error, comm::Communicator& communicator) {
  const bool is_refusal = error.kind() == ErrorKind::kUsage || error.kind() == ErrorKind::kState ||
                          dynamic_cast<const RefusedSave*>(&error) != nullptr;
  return is_refusal && !communicator.is_dead() ? format::kLogRefused : format::kLogFailed;
}

RootLog::RootLog(std::filesystem::path root, os::Access access, const comm::Communicator& communicator)
    : log_(std::move(root), access), ranks_(ranks_of(communicator)), nodes_(nodes_of(communicator)) {}

format::LogCall RootLog::begin(const char* what, std::optional<std::uint64_t> step, const char* outcome) const {
  format::LogCall call;
  call.what = what;
  call.step = step;
  call.outcome = outcome;
  call.ranks = ranks_;
  call.nodes = nodes_;
  return call;
}

void RootLog::add_work(format::LogCall& call) {
  using Seconds = std::chrono::duration<double>;
  const std::lock_guard guard(saves_);
  const auto now = Clock::now();
  const auto began = now - std::chrono::duration_cast<Clock::duration>(Seconds(call.seconds));
  call.is_first = !has_saved_;
  call.work_seconds = std::max(0.0, Seconds(began - works_since_).count() - call.wait_seconds);
  has_saved_ = true;
  works_since_ = call.is_async ? began + std::chrono::duration_cast<Clock::duration>(Seconds(call.stall_seconds)) : now;
}

// Without memory for a line, there is none.

void RootLog::add_save(const Report& report, const RootLife& life) noexcept {
  try {
    if (!report.pruned.empty()) {
      format::LogCall prune = begin(format::kLogPrune, std::nullopt, format::kLogGood);
      for (const StepFate& fate : report.pruned) prune.pruned.push_back(fate.step);
      prune.bytes = report.freed_bytes;
      for (const Phase& phase : report.phases) {
        if (phase.name == format::kLogPrune) prune.seconds = phase.seconds_max;
      }
      prune.run_id = life.run_id;
      log_.append(std::move(prune));
    }
    format::LogCall call = begin(format::kLogSave, report.step, format::kLogGood);
    add_report(report, call);
    add_life(life, call);
    add_work(call);
    log_.append(std::move(call), life.lease);
  } catch (const std::exception&) {
  }
}

void RootLog::add_load(const Report& report, const std::string& run_id) noexcept {
  try {
    format::LogCall call = begin(format::kLogLoad, report.step, format::kLogGood);
    add_report(report, call);
    call.run_id = run_id;
    log_.append(std::move(call));
  } catch (const std::exception&) {
  }
}

void RootLog::add_error(const Ended& ended, const Error& error) noexcept {
  try {
    format::LogCall call = begin(ended.what, ended.step, ended.outcome);
    call.seconds = std::chrono::duration<double>(Clock::now() - ended.began).count();
    call.error_kind = word_of(error.kind());
    call.error = error.what();
    log_.append(std::move(call));
  } catch (const std::exception&) {
  }
}

void RootLog::add_skipped(std::uint64_t step) noexcept {
  try {
    log_.append(begin(format::kLogSave, step, format::kLogSkipped));
  } catch (const std::exception&) {
  }
}

VerifyResult verify_and_log(comm::Communicator& communicator, const std::filesystem::path& path,
                            const opening::Allowed& allowed, const VerifyPart& part) {
  const auto began = RootLog::Clock::now();
  try {
    VerifyResult result = verify(communicator, path, allowed, part);
    log_verification(communicator, path, [&](format::LogCall& call) { add_result(result, call); });
    return result;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNotFound) throw;
    log_verification(communicator, path, [&](format::LogCall& call) {
      call.outcome = outcome_of(error, communicator);
      call.seconds = std::chrono::duration<double>(RootLog::Clock::now() - began).count();
      call.error_kind = word_of(error.kind());
      call.error = error.what();
    });
    throw;
  }
}

}  // namespace cairn::checkpoint
