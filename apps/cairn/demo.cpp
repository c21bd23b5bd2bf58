// Options of `cairn demo save` that say which tensors are saved, and which files are taken from an earlier checkpoint.
#include "cli/demo.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_content(Subcommand command, const std::shared_ptr<cli::DemoOptions>& options) {
  command
      .option("--section", &options->select.sections,
              "Save only tensors of sections like this, e.g. model, as a part of a state; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command
      .option("--name", &options->select.names,
              "Save only tensors whose names are like this, e.g. '*norm*', as a part of a state; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command.flag("--no-save-optim", options->checkpointer.no_save_optim, "Leave out section optimizer");
  command
      .option("--base", &options->base,
              "With --section, --name or --no-save-optim: a step, or the path of the checkpoint that has the others")
      .type_name("TEXT");
  command
      .option("--frozen", &options->frozen,
              "Sections like this do not change between saves, and have files of their own; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command
      .option("--reuse", &options->reuse,
              "Take unchanged files of --frozen from the newest checkpoint: reflink shares storage (XFS, Btrfs), "
              "hard-link also names files twice")
      .one_of({"reflink", "hard-link"})
      .type_name("SHARING");
  command.no_effect({"--base"}, "on a whole state: give --section, --name or --no-save-optim", [options] {
    const Selection& select = options->select;
    return select.sections.empty() && select.names.empty() && !options->checkpointer.no_save_optim;
  });
  command.no_effect({"--frozen"}, "without --reuse", [options] { return options->reuse.empty(); });
  command.no_effect({"--reuse"}, "without --frozen", [options] { return options->frozen.empty(); });
}

}  // namespace cairn::app
