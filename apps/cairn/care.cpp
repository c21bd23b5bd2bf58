// Options of `cairn prune`, `pin`, `unpin` and `repair`, which look after the checkpoints of a run.
#include <memory>

#include "cli/prune.hpp"
#include "cli/repair.hpp"
#include "command.hpp"

namespace cairn::app {

void add_prune(Subcommand program) {
  Subcommand command = program.add_subcommand("prune", "Remove the checkpoints of a run that no rule keeps");
  const auto options = std::make_shared<cli::PruneCommand>();
  Retention& rules = options->retention;
  command.option("root", &options->root, "The directory that holds checkpoint-<step> directories")
      .required()
      .type_name("DIR");
  command.option("--keep-last", &rules.keep_last, "Keep the N checkpoints saved last").positive().type_name("N");
  command.option("--keep-every", &rules.keep_every, "Keep the steps that are multiples of N").positive().type_name("N");
  command
      .option(
          "--keep-steps",
          [&rules](const std::vector<std::string>& steps) {
            for (const std::string& step : steps) rules.keep_steps.push_back(cli::number_in(step));
          },
          "Keep these steps")
      .split_at(',')
      .type_name("STEP,STEP...");
  command
      .option(
          "--keep-best",
          [&rules](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) rules.keep_best.push_back(cli::best_in(text));
          },
          "Keep the best by a metric that was saved with them, as METRIC:min|max[:N]: loss:min:2; may be repeated")
      .type_name("RULE")
      .repeatable();
  command.flag("--keep-by-age", rules.keep_by_age,
               "Keep the last one of every hour of the last 24 hours, and of every day (UTC)");
  command.option("--wait", &options->wait, "Wait so many seconds for another saver of the root to end [0]")
      .not_negative()
      .type_name("SECONDS");
  command.flag("--dry-run", options->options.dry_run, "Only say what would go, and why");
  command.no_effect({"--wait"}, "with --dry-run, which needs no lease", [options] { return options->options.dry_run; });
  add_quiet(command);
  command.flag("--json", options->json, "The result as JSON");
  command.no_effect({"--quiet"}, "with --dry-run, whose list is the result",
                    [options] { return options->options.dry_run; });
  command.no_effect({"--quiet"}, "with --json, which has no progress", [options] { return options->json; });
  command.footer(
      "A checkpoint goes only if no rule keeps it; damaged and void ones go first. These stay whatever the rules:\n"
      "the newest whole one and all that may be newer, pinned ones, what a load has open, and what is not the run's.\n"
      "A run that saves prunes its root itself (Options::retention); then this command says that it has a saver.\n"
      "Examples:\n"
      "  cairn prune runs/a --keep-last 3 --keep-every 1000 --dry-run\n"
      "  cairn prune runs/a --keep-last 3 --keep-every 1000 --keep-best loss:min:2\n"
      "  cairn prune runs/a --keep-last 2 --keep-by-age");
  command.runs([options](cli::Context& context) { return cli::run_prune(context, *options); });
}

void add_pin(Subcommand program, bool is_to_unpin) {
  Subcommand command =
      is_to_unpin ? program.add_subcommand("unpin", "Let a pinned checkpoint go again when no rule keeps it")
                  : program.add_subcommand("pin", "Pin a checkpoint: no pruning removes it, by the run or by hand");
  const auto options = std::make_shared<cli::PinCommand>();
  options->is_to_unpin = is_to_unpin;
  command.option("root", &options->root, "The directory that holds checkpoint-<step> directories")
      .required()
      .type_name("DIR");
  command.option("step", &options->step, "The step of the checkpoint").required().type_name("STEP");
  add_quiet(command);
  command.footer(is_to_unpin ? "Example:\n  cairn unpin runs/a 1000" : "Example:\n  cairn pin runs/a 1000");
  command.runs([options](cli::Context& context) { return cli::run_pin(context, *options); });
}

void add_repair(Subcommand program) {
  Subcommand command =
      program.add_subcommand("repair", "Put right what is damaged, from good bytes that are found elsewhere");
  const auto options = std::make_shared<cli::RepairCommand>();
  command.option("path", &options->path, "A checkpoint directory, or the root of a run's checkpoints")
      .required()
      .type_name("PATH");
  command
      .option(
          "--from", &options->from,
          "A copy of the checkpoint, another checkpoint, or another root, from which good bytes may be taken; may be "
          "repeated")
      .type_name("DIR")
      .repeatable();
  command.option("--wait", &options->wait, "Wait so many seconds for another saver of the root to end [0]")
      .not_negative()
      .type_name("SECONDS");
  command.flag("--dry-run", options->options.dry_run, "Only say what would be done");
  command.no_effect({"--wait"}, "with --dry-run, which needs no lease", [options] { return options->options.dry_run; });
  add_quiet(command, "damage that stays");
  command.flag("--json", options->json, "The result as JSON");
  command.no_effect({"--quiet"}, "with --dry-run, whose list is the result",
                    [options] { return options->options.dry_run; });
  command.footer(
      "Reads every block of every file. Puts right: leftovers of saves that ended early, a lost or stale\n"
      "latest_checkpointed_iteration.txt, lost indexes and checksums, and damaged or missing blocks, which are taken "
      "from\n"
      "--from or from other checkpoints of the root: from the same place of the same file, with the same checksum.\n"
      "A damaged file is written anew next to its place and renamed when all its checksums fit; good files are never\n"
      "touched. A root that a live run saves into is refused. Exit code 1 when damage stays; each is one line.\n"
      "Examples:\n"
      "  cairn repair runs/a --dry-run\n"
      "  cairn repair runs/a --from /backup/runs/a\n"
      "  cairn repair runs/a/checkpoint-1000 --from /backup/checkpoint-1000");
  command.runs([options](cli::Context& context) { return cli::run_repair(context, *options); });
}

}  // namespace cairn::app
