// Options of most commands, and those that several commands share. The others are in bench, advise and care.
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "bench/workload.hpp"
#include "cairn/checkpoint.hpp"
#include "cli/arguments.hpp"
#include "cli/convert.hpp"
#include "cli/diff.hpp"
#include "cli/doctor.hpp"
#include "cli/inspect.hpp"
#include "cli/list.hpp"
#include "cli/plan.hpp"
#include "cli/verify.hpp"
#include "command.hpp"
#include "interop/form.hpp"
#include "opening/carried.hpp"
#include "shard/model.hpp"

namespace cairn::app {

// Options that several subcommands have.

namespace {

// Whole numbers of MB are shown in decimal units, all other sizes in binary units.
std::string default_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMegabyte = 1'000'000;
  if (bytes % (1000 * kMegabyte) == 0) return std::to_string(bytes / (1000 * kMegabyte)) + " GB";
  if (bytes % kMegabyte == 0) return std::to_string(bytes / kMegabyte) + " MB";
  return base::format_size(bytes);
}

}  // namespace

CommandOption add_size(Subcommand command, const std::string& name, std::uint64_t& bytes, const std::string& help) {
  const auto take = [&bytes](const std::string& text) { bytes = cli::size_in(text); };
  return command.option(name, take, help + " [" + default_text(bytes) + "]").type_name("SIZE");
}

void add_engine(Subcommand command, std::string& engine) {
  command.option("--engine", &engine, "How bytes reach storage: auto, direct, mpiio or posix [auto]")
      .one_of({"auto", "direct", "mpiio", "posix"})
      .type_name("ENGINE");
}

void add_engine(Subcommand command, std::string& engine, std::vector<std::string>& hints) {
  add_engine(command, engine);
  command.option("--hint", &hints, "A hint for MPI-IO, as key=value; may be repeated")
      .type_name("KEY=VALUE")
      .repeatable();
  command.no_effect({"--hint"}, "with --engine posix", [&engine] { return engine == "posix"; });
}

void add_aggregators(Subcommand command, std::uint64_t& per_node) {
  command.option("--aggregators", &per_node, "Ranks per node that write and read [by the file system]")
      .positive()
      .type_name("N");
}

void add_alignment(Subcommand command, std::uint64_t& bytes) {
  const auto take = [&bytes](const std::string& text) { bytes = cli::alignment_in(text); };
  command.option("--align", take, "Data sections begin on multiples of this [" + default_text(bytes) + "]")
      .type_name("SIZE");
}

void add_memory(Subcommand command, std::uint64_t& bytes) {
  add_size(command, "--memory", bytes, "Memory per rank for moving data");
}

void add_read_back(Subcommand command, ReadBack& read_back) {
  const auto take = [&read_back](const std::string& text) {
    read_back = text == "all" ? ReadBack::kAll : text == "sample" ? ReadBack::kSample : ReadBack::kOff;
  };
  command
      .option(
          "--read-back", take,
          "Read what was written past the page cache before it counts: off, sample (a 16th of the blocks) or all [off]")
      .one_of({"off", "sample", "all"})
      .type_name("HOW");
}

void add_access(Subcommand command, FileOptions& files) {
  const auto take = [&files](const std::string& text) { files.mode = cli::mode_in(text); };
  command.option("--mode", take, "Permission bits of files, like 660; directories get x where r is [by the umask]")
      .type_name("MODE");
  command.option("--group", &files.group, "Group of files and directories, by name or number [the system's choice]")
      .type_name("GROUP");
}

void add_follow_links(Subcommand command, bool& follow) {
  command.flag(
      "--follow-links", follow,
      "Read through symbolic links that lead out of the checkpoint (those of a Hugging Face cache need no flag)");
}

void add_quiet(Subcommand command, const std::string& left) {
  command.quiet(left.empty() ? "Print errors and warnings alone: no progress, no notes, no summary"
                             : "Print errors, warnings and " + left + " alone: no progress, no notes, no summary");
}

void add_reciprocals(Subcommand command, bool& reciprocals) {
  command.flag("--paddle-reciprocals", reciprocals,
               "Decode PaddlePaddle's O1 and O2 as paddlepaddle 2.6 to 3.2 did (differs in the last bit)");
}

namespace {

constexpr const char* kPartsHelp =
    "Another directory with files of the checkpoint, as machines leave them that save to their own disks; may be "
    "repeated";

CommandOption add_parts(Subcommand command, const std::string& name, std::vector<std::string>& parts,
                        const std::string& help) {
  return command.option(name, &parts, help).type_name("DIR").repeatable();
}

/// Whether the name is one of a file, not of a directory.
bool is_file_name(const std::filesystem::path& path) {
  return opening::is_stage_name(path) || path.string().ends_with(".safetensors");
}

/// Adds --trust-index. `is_one_file`: whether nothing but single files is read.
void add_trust_index(Subcommand command, bool& trust, std::function<bool()> is_one_file) {
  command.flag("--trust-index", trust,
               "Where an index and the files disagree, read just what the index lists, and say what is ignored");
  command.no_effect({"--trust-index"}, "on one file, which has no index", std::move(is_one_file));
}

// cairn convert

void add_convert_rules(Subcommand command, const std::shared_ptr<cli::ConvertCommand>& options) {
  command.no_effect({"--to", "--max-file-size", "--align", "--report", "--remove-master-weight",
                     "--skip-save-model-weight", "--keep-names"},
                    "on one HDF5 file (.h5), which holds neither shards nor codes",
                    [options] { return opening::is_stage_name(options->destination); });
  command.no_effect({"--max-file-size"}, "on shards, where the layout says which files there are",
                    [options] { return interop::form_called(options->to).traits().is_sharded; });
  command.no_effect({"--max-file-size"}, "with --cards 1, which asks for one file of each kind",
                    [options] { return options->cards == 1; });
  command.no_effect({"--report"}, "unless --quant names a codec",
                    [options] { return options->quant == "keep" || options->quant == "off"; });
}

void add_convert(Subcommand program) {
  Subcommand command =
      program.add_subcommand("convert", "Rewrite a checkpoint as Hugging Face files, as shards or as one HDF5 file");
  const auto options = std::make_shared<cli::ConvertCommand>();
  command
      .option("source", &options->source,
              "A checkpoint of any dialect, a staging file, or a root of checkpoints (its newest)")
      .required()
      .type_name("PATH");
  command.option("destination", &options->destination, "A directory that does not exist, or a new file called *.h5")
      .required()
      .type_name("PATH");
  add_parts(command, "--part", options->parts, kPartsHelp);
  command.flag("--by-rank", options->by_rank,
               "Each rank reads what it sees of the source, which others may not: disks of the machines");
  command
      .option("--to", &options->to,
              "hf: Hugging Face files; shards: sharded safetensors of torch DCP; paddlenlp, paddleformers: what that "
              "package resumes from [hf]")
      .one_of(cli::conversion_forms())
      .type_name("FORM");
  command.option("--layout", &options->layout, "Whose shards: 'tp=2,pp=2', or @file.json; needed for --to shards")
      .type_name("LAYOUT");
  command
      .option("--quant", &options->quant,
              "Moments of section optimizer: keep their codes, off to store F32, or a codec: q8, q4, paddle-o1, "
              "paddle-o2; shards and .h5 hold F32 anyway [keep]")
      .one_of({"keep", "off", "q8", "q4", "paddle-o1", "paddle-o2"})
      .type_name("CODEC");
  command
      .option("--section", &options->select.sections,
              "Only tensors of sections like this, e.g. model; '*' is any text; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command
      .option("--name", &options->select.names,
              "Only tensors whose names, as inspect shows them, are like this, e.g. 'layers.3.*'; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command
      .option("--dtype", &options->dtype,
              "Weights (floating tensors of section model) as BF16, F16 or F32, rounded to nearest even, NaN kept, too "
              "large values infinite and counted; moments, master weights and integers stay")
      .one_of({"BF16", "F16", "F32"})
      .type_name("DTYPE");
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
  command.flag(
      "--keep-names", options->keep_names,
      "With --to hf: leave names and order of dimensions as PaddlePaddle has them, for which transformers starts with "
      "new weights");
  add_reciprocals(command, options->decode_by_reciprocals);
  command
      .option(
          "--cards", &options->cards,
          "Processes that PaddlePaddle will resume on; 1 writes what it reads there: one file of each kind, no codes")
      .positive()
      .type_name("N");
  add_size(command, "--max-file-size", options->write.files.max_bytes, "Tensor bytes per file");
  add_engine(command, options->write.engine.name, options->hints);
  add_alignment(command, options->write.files.align_bytes);
  add_size(command, "--block-size", options->write.files.block_bytes, "Checksum unit");
  add_aggregators(command, options->write.engine.aggregators_per_node);
  add_memory(command, options->write.limits.memory_budget_bytes);
  add_read_back(command, options->write.read_back);
  add_access(command, options->write.files);
  add_follow_links(command, options->follow_links);
  add_trust_index(command, options->trust_index, [options] { return is_file_name(options->source); });
  command.flag(
      "--strict", options->strict,
      "Exit code 1 if a note says that something was lost, assumed, or asked for and not done; the destination "
      "is written all the same");
  add_quiet(command, "what was lost or assumed");
  command.flag("--json", options->json, "The report as JSON");
  add_convert_rules(command, options);
  command.footer(
      "The destination appears whole or not at all. Memory for tensor data is bounded by --memory, whatever\n"
      "the checkpoint; names, shapes and places come on top: about 2.5 KB per tensor on each rank.\n"
      "Small files that belong to the model are taken along, pickles and other weights are not: a note names them.\n"
      "--section and --name choose tensors; the small files are taken along unchanged all the same.\n"
      "Examples:\n"
      "  cairn convert runs/a/checkpoint-1000 export\n"
      "  mpirun -n 8 cairn convert paddle-ckpt hf-ckpt --max-file-size 5GB\n"
      "  cairn convert node0/checkpoint-300 whole --part node1/checkpoint-300 --part node2/checkpoint-300\n"
      "  mpirun -n 4 cairn convert hf-ckpt dcp --to shards --layout tp=2,pp=2\n"
      "  mpirun -n 4 cairn convert runs/a/checkpoint-1000 state.h5\n"
      "  mpirun -n 4 cairn convert checkpoint-1000 small --quant q8 --remove-master-weight --report\n"
      "  mpirun -n 4 cairn convert small plain --quant off\n"
      "  cairn convert checkpoint-1000 weights --section model");
  command.runs([options](cli::Context& context) { return cli::run_convert(context, *options); });
}

// cairn diff

void add_diff(Subcommand program) {
  Subcommand command = program.add_subcommand("diff", "Show which tensors of two checkpoints differ, and by how much");
  const auto options = std::make_shared<cli::DiffCommand>();
  command.option("a", &options->a, "A checkpoint of any dialect").required().type_name("PATH");
  command.option("b", &options->b, "Another one; file splits and dialects may differ").required().type_name("PATH");
  add_parts(command, "--part-a", options->parts_a, "Another directory with files of the first; may be repeated");
  add_parts(command, "--part-b", options->parts_b, "Another directory with files of the second; may be repeated");
  add_engine(command, options->options.read.engine);
  add_memory(command, options->options.read.memory_budget_bytes);
  command.option("--rtol", &options->options.tolerance.relative, "Floats are close within atol + rtol * |b| [0]")
      .not_negative()
      .type_name("NUMBER");
  command.option("--atol", &options->options.tolerance.absolute, "The same; integers are close within atol alone [0]")
      .not_negative()
      .type_name("NUMBER");
  add_reciprocals(command, options->options.decode_by_reciprocals);
  command.flag("--all", options->all, "All rows, also on a terminal");
  add_follow_links(command, options->follow_links);
  add_trust_index(command, options->trust_index,
                  [options] { return is_file_name(options->a) && is_file_name(options->b); });
  add_quiet(command, "differences");
  command.flag("--json", options->json, "The result as JSON");
  command.no_effect({"--all"}, "with --json, which has all rows", [options] { return options->json; });
  command.footer(
      "Moments that are stored as codes are compared as the F32 values that they stand for.\n"
      "A tolerance: floats are close when |a - b| <= atol + rtol * |b|, integers when |a - b| <= atol, computed\n"
      "exactly (--rtol does not apply to them: it would hide differences of counters and seeds). BOOL, C64, F4, F6,\n"
      "F8_E8M0 and FNUZ elements are close only when their bits are equal. Without a tolerance all bits must be "
      "equal.\n"
      "Exit code 0 when every tensor is equal bit for bit, or close where a tolerance is given, 1 when not.\n"
      "Examples:\n"
      "  cairn diff runs/a/checkpoint-1000 export\n"
      "  cairn diff quantised plain --rtol 0.05 --atol 1e-9\n"
      "  mpirun -n 4 cairn diff hf-ckpt dcp --json");
  command.runs([options](cli::Context& context) { return cli::run_diff(context, *options); });
}

// cairn doctor

void add_doctor(Subcommand program, const std::optional<std::string>& user_mpi_io,
                const os::OpenFileLimit& open_files) {
  Subcommand command =
      program.add_subcommand("doctor", "Check this machine for settings that lose data, hang, or slow saves");
  const auto options = std::make_shared<cli::DoctorOptions>();
  options->user_mpi_io = user_mpi_io;
  options->user_open_files = open_files;
  command.option("path", &options->path, "Directory for checkpoints").type_name("DIR");
  add_quiet(command, "what is not good");
  command.flag("--json", options->json, "The findings as JSON");
  command.no_effect({"--quiet"}, "with --json, which has all findings", [options] { return options->json; });
  command.footer(
      "Exit code 1 when something is dangerous. One rank of every node looks; nothing is changed, but for an empty "
      "file\n"
      "that is in the directory while the nodes look for it.\n"
      "Examples:\n"
      "  cairn doctor\n"
      "  srun --mpi=pmix -N 2 cairn doctor runs/a");
  command.runs([options](cli::Context& context) { return cli::run_doctor(context, *options); });
}

// cairn inspect

void add_inspect(Subcommand program) {
  Subcommand command = program.add_subcommand("inspect", "Show what a safetensors file or a checkpoint holds");
  const auto options = std::make_shared<cli::InspectOptions>();
  command
      .option("path", &options->path,
              "A safetensors file, a checkpoint directory, or a root of checkpoints (its newest)")
      .required()
      .type_name("PATH");
  add_parts(command, "--part", options->parts, kPartsHelp);
  command.flag("--sections", options->sections, "Only the sections (may be combined with the next three)");
  command.flag("--files", options->files, "Only the data files");
  command.flag("--tensors", options->tensors, "Only the tensors");
  command.flag("--metadata", options->metadata, "Only metadata and carried files");
  command.flag("--all", options->all, "All rows, also on a terminal");
  add_follow_links(command, options->follow_links);
  add_trust_index(command, options->trust_index, [options] { return is_file_name(options->path); });
  command.flag("--json", options->json, "Everything as JSON");
  command.no_effect({"--sections", "--files", "--tensors", "--metadata", "--all"}, "with --json, which has everything",
                    [options] { return options->json; });
  command.footer(
      "Examples:\n"
      "  cairn inspect model.safetensors\n"
      "  cairn inspect runs/a/checkpoint-1000 --files\n"
      "  cairn inspect runs/a --json");
  command.runs([options](cli::Context& context) { return cli::run_inspect(context, *options); });
}

// cairn ls

constexpr std::uint64_t kSecondsOfADay = 86'400;

void add_list(Subcommand program) {
  Subcommand command = program.add_subcommand(
      "ls", "List the checkpoints of a run, complete or not, and what conversions left unfinished");
  const auto options = std::make_shared<cli::ListOptions>();
  command.option("root", &options->root, "The directory that holds checkpoint-<step> directories")
      .required()
      .type_name("DIR");
  add_parts(command, "--part", options->parts,
            "The root of another machine, with parts of checkpoints that Cairn did not write; may be repeated");
  add_follow_links(command, options->follow_links);
  command.flag("--json", options->json, "The list as JSON");
  command.option("--watch", &options->watch_seconds, "List again every so many seconds, until Ctrl-C")
      .positive()
      .at_most(kSecondsOfADay)
      .type_name("SECONDS")
      .value_if_none("2");
  command.footer(
      "A checkpoint of another system is 'foreign' when all of it can be read, and 'incomplete' when not.\n"
      "A 'void' one is complete, but its run went back to an earlier step since, or another run saved it.\n"
      "Age, stall, GiB/s and 'verified' are from the root's log, cairn.log.jsonl.\n"
      "Examples:\n"
      "  cairn ls runs/a\n"
      "  cairn ls runs/a --watch 10\n"
      "  cairn ls runs/a --json");
  command.runs([options](cli::Context& context) { return cli::run_list(context, *options); });
}

// cairn plan

constexpr std::uint64_t kMostRanks = 10'000'000;  // the product of two fits 64 bits

void add_plan(Subcommand program) {
  Subcommand command = program.add_subcommand(
      "plan", "Work out what saving or loading a model costs each rank of a layout, without any ranks");
  const auto options = std::make_shared<cli::PlanOptions>();
  command.option("--model", &options->model, "A model by its name, or @config.json")
      .required()
      .type_name("NAME")
      .offers(shard::model_names());
  command
      .option("--layout", &options->layout,
              "How the ranks shard it: 'tp=8,pp=16,dp=128,zero=1', or @file.json [fsdp over all nodes]")
      .type_name("LAYOUT");
  command
      .option(
          "--load", [options](const std::string& layout) { options->load_layout = layout; },
          "Instead of the save: a load of what it saves, by the ranks of this layout")
      .type_name("LAYOUT");
  command.option("--nodes", &options->nodes, "Nodes of these ranks: figures per node, and bytes between nodes")
      .positive()
      .at_most(kMostRanks)
      .type_name("N");
  command.option("--ranks-per-node", &options->ranks_per_node, "Consecutive ranks on a node [ranks / nodes]")
      .positive()
      .at_most(kMostRanks)
      .type_name("N");
  command.option("--sections", &options->sections, "model, optimizer, master_weights, several with commas [all]")
      .lists(',')
      .type_name("NAMES")
      .offers({"all", "model", "optimizer", "master_weights"});
  command.option("--layers", &options->layers, "Layers of the model, fewer for a quick run")
      .positive()
      .at_most(bench::kMostLayers)
      .type_name("N");
  add_size(command, "--max-file-size", options->checkpointer.files.max_bytes, "Tensor bytes per file");
  add_alignment(command, options->checkpointer.files.align_bytes);
  add_size(command, "--block", options->checkpointer.files.block_bytes, "Checksum unit");
  add_memory(command, options->checkpointer.limits.memory_budget_bytes);
  command
      .option(
          "--stripe", [options](const std::string& text) { options->stripe_bytes = cli::size_in(text); },
          "Stripe of the file system: how many have more than one writer")
      .type_name("SIZE");
  command.no_effect({"--stripe"}, "with --load: it counts the writers of a stripe",
                    [options] { return options->load_layout.has_value(); });
  command
      .option(
          "--bandwidth",
          [options](const std::string& text) { options->bandwidth_bytes_per_second = cli::rate_in(text); },
          "Of the file system per second ('100GiB/s'): how long writing or reading takes")
      .type_name("RATE");
  command
      .option(
          "--ranks-sampled", [options](const std::string& text) { options->ranks_sampled = cli::sample_in(text); },
          "Ranks whose planning is measured, or all [32]")
      .type_name("N");
  add_quiet(command, "the figures");
  command.flag("--json", options->json, "The figures as JSON");
  command.footer(
      "Every rank is planned for in this process, with the planner of a real save or load; time and heap are measured\n"
      "on a sample. The state is weights, F32 master weights and two F32 Adam moments, under the model's own names.\n"
      "Examples:\n"
      "  cairn plan --model llama-3.1-405b --layout tp=8,pp=16,dp=128,zero=1,uneven --bandwidth 100GiB/s\n"
      "  cairn plan --model llama-3.1-70b --nodes 64 --ranks-per-node 8\n"
      "  cairn plan --model deepseek-v3 --layout pp=16,dp=128,ep=64,zero=1,uneven --stripe 4MiB --json\n"
      "  cairn plan --model deepseek-v3 --layout pp=16,dp=128,ep=64,zero=1,uneven --load "
      "pp=8,dp=128,ep=64,zero=1,uneven");
  command.runs([options](cli::Context& context) { return cli::run_plan(context, *options); });
}

// cairn verify

void add_verify(Subcommand program) {
  Subcommand command = program.add_subcommand("verify", "Check that the bytes on disk are those that were written");
  const auto options = std::make_shared<cli::VerifyOptions>();
  command.option("path", &options->path, "A checkpoint directory, or a root of checkpoints (its newest)")
      .required()
      .type_name("PATH");
  command.flag("--all", options->all, "Every checkpoint of the root, a line for each");
  const auto take_limit = [options](const std::string& text) {
    options->limit_seconds = cli::seconds_in(text);
    if (*options->limit_seconds == 0) throw Error(ErrorKind::kUsage, text + " is not above 0");
  };
  command
      .option("--for", take_limit,
              "For so long the checkpoints of the root, those first that were verified longest ago, like 10m; the next "
              "call goes on")
      .type_name("TIME");
  command.no_effect({"--all"}, "with --for, which takes as many checkpoints as there is time for",
                    [options] { return options->limit_seconds.has_value(); });
  command
      .option("--require", &options->require,
              "What must be there: model, optimizer, master_weights, adapter or step, with commas between them")
      .split_at(',')
      .repeatable()
      .offers(cli::required_words());
  add_follow_links(command, options->follow_links);
  add_trust_index(command, options->trust_index, [options] { return is_file_name(options->path); });
  add_quiet(command, "faults");
  command.flag("--json", options->json, "The result as JSON");
  command.footer(
      "Every block of every file is read, past the page cache where the file system allows it, and checked, by all\n"
      "ranks together. Each fault is one line of output; exit code 1 when there is any. A checkpoint without\n"
      "cairn.json has no checksums: its structure is checked, and the files of a Hugging Face cache against the\n"
      "SHA-256 in their names.\n"
      "Examples:\n"
      "  cairn verify runs/a/checkpoint-1000\n"
      "  mpirun -n 8 cairn verify runs/a\n"
      "  mpirun -n 8 cairn verify runs/a --all\n"
      "  cairn verify runs/a --for 10m\n"
      "  cairn verify runs/a --require model,optimizer,step");
  command.runs([options](cli::Context& context) { return cli::run_verify(context, *options); });
}

}  // namespace

void add_commands(Subcommand program, const Start& start) {
  add_inspect(program);
  add_verify(program);
  add_convert(program);
  add_diff(program);
  add_list(program);
  add_prune(program);
  add_pin(program, false);
  add_pin(program, true);
  add_repair(program);
  add_demo(program);
  add_bench(program, start.command_line);
  add_plan(program);
  add_advise(program);
  add_report(program);
  add_doctor(program, start.user_mpi_io, start.user_open_files);
  add_help(program);
}

}  // namespace cairn::app
