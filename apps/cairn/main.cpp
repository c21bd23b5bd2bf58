// The program `cairn`: starts MPI, parses the same arguments on every rank, runs one subcommand.
//
// Rank 0 speaks; every rank ends with the same exit code (cli/exit_code.hpp). An Error is agreed on by all ranks, so that
// all leave together; anything else is a bug of one rank and ends the job through MpiSession.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "base/log.hpp"
#include "base/units.hpp"
#include "cli/exit_code.hpp"
#include "cli/launcher.hpp"
#include "cli/version.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "command.hpp"
#include "os/fault.hpp"

namespace {

using cairn::cli::Context;

// What the program was started with. The variable is kept as it was before MpiSession sets it for this process.
struct Arguments {
  int count;
  char** words;
  std::optional<std::string> user_mpi_io;
};

std::string command_line(const Arguments& arguments) {
  std::string out;
  for (int i = 0; i < arguments.count; ++i) out += fmt::format("{}{}", i == 0 ? "" : " ", arguments.words[i]);
  return out;
}

void set_up(CLI::App& app, cairn::app::Command& chosen, const Arguments& arguments) {
  app.require_subcommand(1);
  app.set_version_flag("--version", cairn::cli::version_text, "Versions of the tool and of its MPI library");
  app.footer(
      "Every subcommand runs alone or under mpirun or srun; 'cairn SUBCOMMAND --help' has examples.\n"
      "Exit codes: 0 good, 1 the checkpoint or the work failed, 2 wrong usage.");
  cairn::app::add_inspect(app, chosen);
  cairn::app::add_verify(app, chosen);
  cairn::app::add_convert(app, chosen);
  cairn::app::add_diff(app, chosen);
  cairn::app::add_list(app, chosen);
  cairn::app::add_demo(app, chosen);
  cairn::app::add_bench(app, chosen, command_line(arguments));
  cairn::app::add_plan(app, chosen);
  cairn::app::add_doctor(app, chosen, arguments.user_mpi_io);
}

// "cairn demo save", as far as the arguments got.
std::string name_of_chosen(const CLI::App& app) {
  std::string name = "cairn";
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

// CLI11 misses a subcommand before it looks at the word that stands in its place.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> extra = app.remaining(true);
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr || extra.empty()) return error.what();
  return fmt::format("{}; '{}' is none", error.what(), cairn::base::printable(extra.front()));
}

// Exit code when there is nothing left to run: help was asked for, or the arguments are wrong.
std::optional<int> parse(CLI::App& app, int argc, char** argv, cairn::cli::Output& output) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream text;
      app.exit(error, text, text);
      std::string lines = text.str();
      while (lines.ends_with('\n')) lines.pop_back();
      output.line(lines);
      return cairn::cli::kExitGood;
    }
    output.error(fmt::format("{} (see {} --help)", explain(app, error), name_of_chosen(app)));
    return cairn::cli::kExitUsage;
  }
}

/// A command whose ranks make no progress for so long ends.
constexpr double kSilenceSeconds = 1800;

int run(Context& context, const Arguments& arguments) {
  CLI::App app("Parallel checkpoints of large training jobs, in plain safetensors files", "cairn");
  cairn::app::Command chosen;
  set_up(app, chosen, arguments);
  if (const auto mismatch = cairn::cli::launcher_mismatch(context.communicator.size());
      mismatch && mismatch->is_first) {
    cairn::base::warn_once(describe(*mismatch));
  }
  std::optional<int> code = parse(app, arguments.count, arguments.words, context.output);
  if (!code) code = chosen(context);
  cairn::comm::agree(context.communicator, "print", [&] { context.output.finish(); });
  return *code;
}

int run_and_tell(Context& context, const Arguments& arguments) {
  try {
    return run(context, arguments);
  } catch (const cairn::Error& error) {
    context.output.error(error.what());
    if (error.kind() == cairn::ErrorKind::kInternal && context.communicator.size() > 1) throw;
    return cairn::cli::exit_code_of(error.kind());
  } catch (const std::exception& error) {
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
    const cairn::comm::MpiSession session(argc, argv);
    const auto communicator =
        cairn::comm::duplicate_mpi(MPI_COMM_WORLD, {kSilenceSeconds, cairn::OnSilence::kEndProcess, {}});
    cairn::os::set_fault_rank(communicator->rank());
    cairn::cli::Output output(communicator->rank() == 0);
    Context context{*communicator, output};
    return run_and_tell(context, {argc, argv, user_mpi_io});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn: error: %s\n", error.what());
    return cairn::cli::kExitFailed;
  }
}
