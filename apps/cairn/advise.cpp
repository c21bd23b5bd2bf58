// Options of `cairn advise` and `cairn report`.
#include "cli/advise.hpp"
#include "cli/report.hpp"

#include <memory>

#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "command.hpp"

namespace cairn::app {
namespace {

CommandOption add_time(Subcommand command, const std::string& name, std::optional<double>& seconds,
                       const std::string& help) {
  const auto take = [&seconds](const std::string& text) { seconds = cli::seconds_in(text); };
  return command.option(name, take, help).type_name("TIME");
}

CommandOption add_time_above_0(Subcommand command, const std::string& name, std::optional<double>& seconds,
                               const std::string& help) {
  const auto take = [&seconds](const std::string& text) {
    seconds = cli::seconds_in(text);
    if (*seconds == 0) throw Error(ErrorKind::kUsage, text + " is not above 0");
  };
  return command.option(name, take, help).type_name("TIME");
}

void add_failures(Subcommand command, const std::shared_ptr<cli::AdviseOptions>& options) {
  add_time_above_0(command, "--mtbf", options->mtbf_s, "Mean time between failures of the whole job");
  command.option("--nodes", &options->nodes, "Nodes of the job, each with failures at --rate")
      .positive()
      .type_name("N");
  command.option("--rate", &options->rate, "Failures in 1000 node-days [6.5, as published for nodes with 8 GPUs]")
      .positive()
      .type_name("NUMBER");
  command.option("--failures", &options->failures, "Failures of this job in --hours; 0 too").type_name("N");
  command.option("--hours", &options->hours, "Hours in which --failures were counted").positive().type_name("NUMBER");
  command.no_effect({"--nodes", "--rate", "--failures", "--hours"}, "with --mtbf, which says how often the job fails",
                    [options] { return options->mtbf_s.has_value(); });
  command.no_effect({"--failures", "--hours"}, "with --nodes, which says how often the job fails",
                    [options] { return options->nodes.has_value(); });
  command.no_effect({"--rate"}, "without --nodes", [options] { return !options->nodes; });
  command.no_effect({"--hours"}, "without --failures", [options] { return !options->failures; });
}

void add_advice_input(Subcommand command, const std::shared_ptr<cli::AdviseOptions>& options) {
  add_time(command, "--stall", options->stall_s, "The program waits this long in each save");
  add_time(command, "--background", options->background_s,
           "From the end of the stall until the checkpoint is durable [0: saves are not asynchronous]");
  add_time(command, "--load", options->load_s, "Loading a checkpoint after a failure [0]");
  add_time(command, "--restart", options->restart_s,
           "From a failure until the load: detection, queue, start of the program [0]");
  add_time_above_0(command, "--step", options->step_s, "A training step; the interval is a number of steps then");
  add_failures(command, options);
  add_time_above_0(command, "--run", options->run_s, "Length of the whole run, for the formula of guides");
}

}  // namespace

void add_advise(Subcommand program) {
  Subcommand command =
      program.add_subcommand("advise", "Work out how often to save, from what saves cost and how often the job fails");
  const auto options = std::make_shared<cli::AdviseOptions>();
  command.option("root", &options->root, "A run's root: its log has the costs and restarts that no option gives")
      .type_name("DIR");
  add_advice_input(command, options);
  command.flag("--json", options->json, "The advice as JSON");
  command.footer(
      "A TIME is in seconds, or has a unit: 250ms, 90s, 15m, 3h, 2d. Say how often the job fails by --mtbf, by "
      "--nodes, or\n"
      "by --failures and --hours; few failures make a wide band. The waste is the share of the time that is not work "
      "in\n"
      "the end: stalls, work since the last durable checkpoint, restarts and loads.\n"
      "Examples:\n"
      "  cairn advise runs/a --restart 5m --step 15\n"
      "  cairn advise --stall 1.2 --background 40 --load 30 --restart 300 --step 15 --failures 12 --hours 400\n"
      "  cairn advise --stall 10 --restart 5m --mtbf 3h\n"
      "  cairn advise --stall 10 --restart 5m --nodes 64 --rate 6.5 --json");
  command.runs([options](cli::Context& context) { return cli::run_advise(context, *options); });
}

void add_report(Subcommand program) {
  Subcommand command = program.add_subcommand("report", "Say what happened in a run, from its root's log");
  const auto options = std::make_shared<cli::ReportOptions>();
  const std::shared_ptr<cli::AdviseOptions> advice(options, &options->advice);
  command.option("root", &options->advice.root, "The directory that holds checkpoint-<step> directories")
      .required()
      .type_name("DIR");
  command.option("--html", &options->html_file, "Write a page with plots of sizes, stalls, rates, failures, intervals")
      .type_name("FILE");
  add_advice_input(command, advice);
  command.flag("--json", options->json, "The figures as JSON");
  command.footer(
      "The interval between saves stands beside the advice of cairn advise, whose options replace what the log has.\n"
      "Examples:\n"
      "  cairn report runs/a\n"
      "  cairn report runs/a --restart 5m --html report.html");
  command.runs([options](cli::Context& context) { return cli::run_report(context, *options); });
}

}  // namespace cairn::app
