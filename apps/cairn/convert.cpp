// Wiring of `cairn convert`.
#include "cli/convert.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_convert(Subcommand program) {
  Subcommand command =
      program.add_subcommand("convert", "Rewrite a checkpoint as Hugging Face files, as shards or as one HDF5 file");
  const auto options = std::make_shared<cli::ConvertCommand>();
  command
      .option("source", &options->source,
              "A checkpoint of any dialect, a staging file, or a root of checkpoints (its newest)")
      .required();
  command.option("destination", &options->destination, "A directory that does not exist, or a new file called *.h5")
      .required();
  command.option("--to", &options->to, "hf: Hugging Face files; shards: sharded safetensors of torch DCP [hf]")
      .one_of({"hf", "shards"})
      .type_name("FORM");
  command.option("--layout", &options->layout, "Whose shards: 'tp=2,pp=2', or @file.json; needed for --to shards")
      .type_name("LAYOUT");
  command
      .option("--quant", &options->quant,
              "Moments of section optimizer: keep their codes, off to store F32, or a codec: q8, q4, paddle-o1, "
              "paddle-o2; shards and .h5 hold F32 anyway [keep]")
      .one_of({"keep", "off", "q8", "q4", "paddle-o1", "paddle-o2"})
      .type_name("CODEC");
  cairn::Quantisation& quantisation = options->write.quantisation;
  command.flag("--report", quantisation.report, "What coding did to every tensor: largest and RMS errors");
  command
      .option("--max-update-error", &quantisation.max_update_error,
              "Refuse codes that make a tensor's updates wrong by more than this (RMS; 0.01 is 1 %)")
      .positive()
      .type_name("SHARE");
  command.flag("--remove-master-weight", quantisation.remove_master_weight,
               "Leave out master weights that loads can make from the model's");
  command.flag("--skip-save-model-weight", quantisation.skip_save_model_weight,
               "Leave out model weights that loads can make from master weights");
  add_paddle_reciprocals(command, options->paddle_reciprocals);
  add_size(command, "--max-file-size", options->write.max_file_bytes, "Tensor bytes per file");
  add_engine(command, options->write.engine);
  add_size(command, "--align", options->write.align_bytes, "Data sections begin on multiples of this");
  add_size(command, "--block-size", options->write.block_bytes, "Checksum unit");
  add_aggregators(command, options->write.aggregators_per_node);
  add_memory(command, options->write.memory_budget_bytes);
  add_read_back(command, options->write.read_back);
  command.option("--hint", &options->hints, "A hint for MPI-IO, as key=value; may be repeated")
      .type_name("KEY=VALUE")
      .repeatable();
  add_follow_links(command, options->follow_links);
  command.flag("--json", options->json, "The report as JSON");
  command.footer(
      "The destination appears whole or not at all. Memory is bounded by --memory, whatever the checkpoint.\n"
      "Small files that belong to the model are taken along, pickles and other weights are not: a note names them.\n"
      "Examples:\n"
      "  cairn convert runs/a/checkpoint-1000 export\n"
      "  mpirun -n 8 cairn convert paddle-ckpt hf-ckpt --max-file-size 5GB\n"
      "  mpirun -n 4 cairn convert hf-ckpt dcp --to shards --layout tp=2,pp=2\n"
      "  mpirun -n 4 cairn convert runs/a/checkpoint-1000 state.h5\n"
      "  mpirun -n 4 cairn convert checkpoint-1000 small --quant q8 --remove-master-weight --report\n"
      "  mpirun -n 4 cairn convert small plain --quant off");
  command.runs([options](cli::Context& context) { return cli::run_convert(context, *options); });
}

}  // namespace cairn::app
