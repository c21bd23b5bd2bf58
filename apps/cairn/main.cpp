// The program `cairn`: starts MPI, parses the same arguments on every rank, runs one subcommand.
//
// Rank 0 prints; every rank ends with the same exit code (base/exit_codes.hpp). All ranks agree on an Error, so that
// they leave together; any other exception, and an Error(kInternal) that the ranks have not agreed on, ends a job of
// several ranks through MpiSession.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/log_words.hpp"
#include "cli/option_words.hpp"
#include "cli/output.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi.hpp"
#include "command.hpp"
#include "os/fault.hpp"
#include "os/interrupt.hpp"
#include "os/limits.hpp"

namespace {

using cairn::cli::Context;

// Arguments and environment at the start; `user_mpi_io` is OMPI_MCA_io, read before MpiSession sets this variable.
struct Arguments {
  int count;
  char** words;
  std::optional<std::string> user_mpi_io;
  cairn::os::OpenFileLimit user_open_files;
};

std::string words_of(const Arguments& arguments) {
  std::string out;
  for (int i = 0; i < arguments.count; ++i) out += fmt::format("{}{}", i == 0 ? "" : " ", arguments.words[i]);
  return out;
}

// Prints the help or the error, and returns the exit code.
int refuse(const cairn::app::CommandLine::Refusal& refusal, cairn::cli::Output& output) {
  if (refusal.is_error) {
    output.error(refusal.text);
    return cairn::cli::kExitUsage;
  }
  output.line(refusal.text);
  return cairn::cli::kExitGood;
}

/// A command ends if no rank makes progress for this many seconds, unless CAIRN_WATCHDOG_S gives another limit.
constexpr double kSilenceSeconds = 1800;

int run(Context& context, const Arguments& arguments) {
  cairn::app::CommandLine command_line("cairn", cairn::app::kDescription);
  cairn::app::set_up(command_line, {words_of(arguments), arguments.user_mpi_io, arguments.user_open_files});
  if (const auto mismatch = cairn::comm::launcher_mismatch(context.communicator.size());
      mismatch && mismatch->is_first) {
    cairn::base::warn_once(describe(*mismatch));
  }
  const auto refusal = command_line.parse(arguments.count, arguments.words);
  if (!refusal) cairn::cli::set_command_options(command_line.options_of_chosen());
  if (command_line.is_quiet()) context.output.be_quiet();
  const int code = refusal ? refuse(*refusal, context.output) : command_line.chosen()(context);
  cairn::comm::agree(context.communicator, "print", [&] { context.output.finish(); });
  return code;
}

int run_and_tell(Context& context, const Arguments& arguments) {
  try {
    return run(context, arguments);
  } catch (const cairn::Error& error) {
    cairn::os::wait_when_ending();
    context.output.error(error.what());
    const bool is_agreed = dynamic_cast<const cairn::comm::AgreedError*>(&error) != nullptr;
    if (error.kind() == cairn::ErrorKind::kInternal && !is_agreed && context.communicator.size() > 1) throw;
    return cairn::cli::exit_code_of(error.kind());
  } catch (const std::exception& error) {
    cairn::os::wait_when_ending();
    cairn::cli::Output(true).error(fmt::format("rank {}: {}", context.communicator.rank(), error.what()));
    if (context.communicator.size() > 1) throw;
    return cairn::cli::kExitFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const char* mpi_io = std::getenv("OMPI_MCA_io");
    const auto user_mpi_io = mpi_io != nullptr ? std::optional<std::string>(mpi_io) : std::nullopt;
    const auto user_open_files = cairn::os::meet_limits();
    cairn::os::end_on_signals();
    cairn::base::set_log_words(&cairn::cli::in_words_of_command);
    const cairn::comm::MpiSession session(argc, argv);
    const auto communicator =
        cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kSilenceSeconds, cairn::OnSilence::kEndProcess, {}});
    cairn::os::set_fault_rank(communicator->rank());
    cairn::os::set_speaks_at_end(communicator->rank() == 0);
    cairn::cli::Output output(communicator->rank() == 0);
    Context context{*communicator, output};
    const int code = run_and_tell(context, {argc, argv, user_mpi_io, user_open_files});
    cairn::os::wait_when_ending();
    cairn::os::settle_ending(code);
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn: error: %s\n", error.what());
    return cairn::cli::kExitFailed;
  }
}
