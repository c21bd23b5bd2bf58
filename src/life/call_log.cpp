#include "life/call_log.hpp"

#include <exception>
#include <utility>

#include "checkpoint/root_log.hpp"
#include "root/run_log.hpp"

namespace cairn::life {

CallLine::CallLine(std::filesystem::path root, const char* what, std::optional<std::uint64_t> step)
    : root_(std::move(root)) {
  call.what = what;
  call.step = step;
  call.outcome = format::kLogGood;
  call.ranks = 1;
  call.nodes = 1;
}

void CallLine::fail(const std::string& problem) {
  call.outcome = format::kLogFailed;
  call.error_kind = checkpoint::word_of(ErrorKind::kIo);
  call.error = problem;
}

void CallLine::fail(const Error& error) {
  const bool is_refusal = error.kind() == ErrorKind::kUsage || error.kind() == ErrorKind::kState;
  call.outcome = is_refusal ? format::kLogRefused : format::kLogFailed;
  call.error_kind = checkpoint::word_of(error.kind());
  call.error = error.what();
}

void CallLine::append(root::Lease* lease) noexcept {
  try {
    call.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    root::RunLog(root_).append(call, lease);
  } catch (const std::exception&) {  // without memory for a line, there is none
  }
}

}  // namespace cairn::life
