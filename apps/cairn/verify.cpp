// Wiring of `cairn verify`.
#include "cli/verify.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_verify(Subcommand program) {
  Subcommand command = program.add_subcommand("verify", "Are the bytes on disk the bytes that were written?");
  const auto options = std::make_shared<cli::VerifyOptions>();
  command.option("path", &options->path, "A checkpoint directory, or a root of checkpoints (its newest)").required();
  add_follow_links(command, options->follow_links);
  command.flag("--json", options->json, "The result as JSON");
  command.footer(
      "Every block of every file is read, past the page cache where the file system allows it, and checked, by all\n"
      "ranks together. Each fault is one line of output; exit code 1 when there is any. A checkpoint without\n"
      "cairn.json has no checksums: its structure is checked.\n"
      "Examples:\n"
      "  cairn verify runs/a/checkpoint-1000\n"
      "  mpirun -n 8 cairn verify runs/a");
  command.runs([options](cli::Context& context) { return cli::run_verify(context, *options); });
}

}  // namespace cairn::app
