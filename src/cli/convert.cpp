// Checks the arguments of a conversion, runs it and prints the result.
#include "cli/convert.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "comm/launcher.hpp"
#include "conversion/convert.hpp"
#include "interop/dialect.hpp"

namespace cairn::cli {

std::vector<std::string> conversion_forms() { return interop::form_words(); }

namespace {

conversion::ConvertOptions options_of(Context& context, const ConvertCommand& command) {
  const interop::FormTraits& form = interop::form_called(command.to).traits();
  if (form.is_sharded && command.layout.empty()) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("--to {} needs --layout: whose shards are to be written, e.g. --layout tp=2,pp=2", form.word));
  }
  if (!form.is_sharded && !command.layout.empty()) {
    throw Error(ErrorKind::kUsage,
                "--layout says whose shards are to be written, and nothing of Hugging Face files or .h5: leave it out, "
                "or give --to shards");
  }
  if (command.cards != 0 && !form.asks_processes) {
    std::vector<std::string> words = interop::form_words();
    std::erase_if(words, [](const std::string& word) { return !interop::form_called(word).traits().asks_processes; });
    throw Error(ErrorKind::kUsage,
                fmt::format("--cards says on how many processes the training will resume: give --to {} with it",
                            base::joined(words, " or ")));
  }
  if (command.keep_names && !form.keeps_names) {
    throw Error(ErrorKind::kUsage, fmt::format("--keep-names has no effect with --to {}: leave it out", form.word));
  }
  const bool has_codec = command.quant != "keep" && command.quant != "off";
  if (command.write.quantisation.max_update_error > 0 && !has_codec) {
    throw Error(ErrorKind::kUsage, fmt::format("--max-update-error says how wrong codes may be, and with --quant {} "
                                               "nothing is coded: leave it out, or give a codec",
                                               command.quant));
  }
  conversion::ConvertOptions options;
  options.write = command.write;
  options.write.engine.hints = parse_hints(command.hints);
  options.read = {command.write.engine.name, command.write.limits.memory_budget_bytes, options.write.engine.hints,
                  command.write.engine.aggregators_per_node, opening::allowed_by(command)};
  options.to = command.to;
  options.quant = command.quant;
  options.decode_by_reciprocals = command.decode_by_reciprocals;
  options.processes = command.cards;
  options.keep_names = command.keep_names;
  options.select = command.select;
  if (!command.dtype.empty()) options.dtype = dtype_from_name(command.dtype).value();
  if (!command.layout.empty()) options.layout = layout_text(context.communicator, command.layout);
  return options;
}

conversion::ConvertReport convert_with_progress(Context& context, const opening::Parts& source,
                                                const std::filesystem::path& destination,
                                                const conversion::ConvertOptions& options) {
  const ProgressLine progress(context.output);
  return conversion::convert(context.communicator, source, destination, options);
}

/// Prints a table with a row for each coded pair of moments.
void print_errors(Output& output, const std::vector<CodingError>& errors) {
  if (errors.empty()) return;
  Table table({"tensor", "codec", ">elements", ">update RMS %", ">largest %", ">sqrt(v) RMS %", ">largest %"});
  for (const CodingError& error : errors) {
    table.add({base::printable(error.name), error.codec, group_digits(error.elements),
               fmt::format("{:.3g}", 100 * error.update_rms), fmt::format("{:.3g}", 100 * error.update_max),
               fmt::format("{:.3g}", 100 * error.root_rms), fmt::format("{:.3g}", 100 * error.root_max)});
  }
  output.line(table.text(output.is_terminal() ? kTerminalRows : kNoLimit));
}

base::Json errors_json(const std::vector<CodingError>& errors) {
  return base::Json::array_of(errors, [](const CodingError& error) -> base::Json {
    return {{"section", error.section},
            {"name", error.name},
            {"codec", error.codec},
            {"elements", error.elements},
            {"elements_measured", error.elements_measured},
            {"update_rms", json_number(error.update_rms)},
            {"update_max", json_number(error.update_max)},
            {"root_rms", json_number(error.root_rms)},
            {"root_max", json_number(error.root_max)},
            {"first_max", json_number(error.first_max)},
            {"second_max", json_number(error.second_max)}};
  });
}

/// The number of notes on what was lost, assumed or not done; passing over a newer step that has lost files is one.
std::uint64_t omissions_of(const ResolvedPath& source, const conversion::ConvertReport& converted) {
  return source.lost.size() + converted.notes.omissions;
}

/// Notes that only inform are left out by --quiet; where one is on what was lost, all are printed.
void print_notes(Output& output, const ResolvedPath& source, const conversion::ConvertReport& converted) {
  if (output.is_quiet() && omissions_of(source, converted) == 0) return;
  for (const std::string& note : source.notes) output.line("note: " + one_line(note));
  for (const std::string& note : converted.notes.lines) output.line("note: " + one_line(note));
}

void print_document(Output& output, const ResolvedPath& source, const conversion::ConvertReport& converted) {
  const Report& report = converted.report;
  base::Json document = json_document("convert");
  document["source"] = source.path.string();
  document["parts"] = source.more;
  document["destination"] = report.directory.string();
  document["tensors"] = report.tensors;
  document["files"] = report.files;
  document["size_bytes"] = report.bytes;
  document["engine"] = report.engine;
  document["engine_reason"] = report.engine_reason;
  document["seconds_max"] = report.seconds;
  std::vector<std::string> notes = source.notes;
  notes.insert(notes.end(), converted.notes.lines.begin(), converted.notes.lines.end());
  notes.insert(notes.end(), report.warnings.begin(), report.warnings.end());
  document["notes"] = messages_json(notes);
  document["omissions"] = omissions_of(source, converted);
  document["phases"] = phases_json(report.phases);
  if (!report.coding_errors.empty()) document["coding_errors"] = errors_json(report.coding_errors);
  if (!report.beyond_figures.empty()) document["beyond_figures"] = errors_json(report.beyond_figures);
  print_json(output, document);
}

}  // namespace

int run_convert(Context& context, const ConvertCommand& command) {
  const conversion::ConvertOptions options = options_of(context, command);
  comm::agree(context.communicator, "look at the launcher", &comm::refuse_lonely_process);
  const ResolvedPath source = command.by_rank ? ResolvedPath{command.source, {}, command.parts}
                                              : resolve(context.communicator, command.source, command.parts);
  comm::agree_on_root(context.communicator, "look for an index", 0, [&] {
    if (command.trust_index && !command.by_rank) refuse_idle_trust({&source});
  });
  const Sight sight = command.by_rank ? Sight::kEachRank : Sight::kAllRanks;
  const auto converted = convert_with_progress(context, source.parts(sight), command.destination, options);
  const int code = command.strict && omissions_of(source, converted) != 0 ? kExitFailed : kExitGood;
  if (command.json) {
    print_document(context.output, source, converted);
    return code;
  }
  const Report& report = converted.report;
  print_notes(context.output, source, converted);
  print_run(context.output, report, report.bytes);
  print_errors(context.output, report.coding_errors);
  context.output.summary(fmt::format("converted {}, {}, into {} of {}", counted(report.tensors, "tensor"),
                                     base::format_size(report.bytes), counted(report.files, "file"),
                                     base::printable(report.directory.string())));
  if (code != kExitGood) {
    context.output.line(fmt::format("--strict: {} above, on what was lost, assumed or not done",
                                    counted(omissions_of(source, converted), "note is", "notes are")));
  }
  return code;
}

}  // namespace cairn::cli
