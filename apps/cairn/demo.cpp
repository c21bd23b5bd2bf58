// Options of `cairn demo save` that say which tensors are saved.
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
  command.no_effect({"--base"}, "on a whole state: give --section, --name or --no-save-optim", [options] {
    const Selection& select = options->select;
    return select.sections.empty() && select.names.empty() && !options->checkpointer.no_save_optim;
  });
}

}  // namespace cairn::app
