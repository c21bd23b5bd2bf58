// The program itself: --version, --help and `cairn help`.
#include <memory>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "command.hpp"

namespace cairn::app {

void add_help(Subcommand program) {
  const std::vector<std::string> names = program.names();
  Subcommand command = program.add_subcommand(CommandLine::kHelp, "Show the help of a command");
  // The words are looked at by CommandLine::parse(): 'cairn help verify' is 'cairn verify --help'.
  const auto words = std::make_shared<std::vector<std::string>>();
  command.option("command", words.get(), "A command, like 'verify' or 'demo save'").type_name("COMMAND").offers(names);
  command.footer("Examples:\n  cairn help\n  cairn help verify\n  cairn help demo save");
  command.runs([words](cli::Context&) { return cli::kExitGood; });
}

void set_up(CommandLine& command_line, const Start& start) {
  command_line.version(cli::version_text, "Versions of the tool and of its MPI library");
  Subcommand program = command_line.program();
  program.require_subcommand();
  program.footer(
      "Every subcommand runs alone or under mpirun or srun; 'cairn SUBCOMMAND --help' has examples.\n"
      "Exit codes: 0 good, 1 the checkpoint or the work failed, 2 wrong usage, 5 no progress for too long,\n"
      "130 ended by Ctrl-C, 143 by SIGTERM, 128 and the number of another signal (what was being written is removed).\n"
      "CAIRN_PROGRESS_S: seconds between lines of progress in a log [10].");
  add_commands(program, start);
}

}  // namespace cairn::app
