#include "conversion/convert.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/extras.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/save_content.hpp"
#include "checkpoint/window_io.hpp"
#include "codes/coding_report.hpp"
#include "codes/elided.hpp"
#include "comm/agree.hpp"
#include "conversion/choice.hpp"
#include "conversion/coded_catalog.hpp"
#include "conversion/refusals.hpp"
#include "conversion/stage.hpp"
#include "conversion/stage_reader.hpp"
#include "conversion/window_filler.hpp"
#include "format/blocks.hpp"
#include "format/safetensors.hpp"
#include "format/stored_checkpoint.hpp"
#include "interop/dialect.hpp"
#include "interop/file_names.hpp"
#include "opening/carried.hpp"
#include "os/access.hpp"
#include "os/file.hpp"
#include "planning/save_limits.hpp"
#include "root/commit.hpp"

namespace cairn::conversion {
namespace {

namespace fs = std::filesystem;

/// Rank-local. The content of the source's config.json, or an empty string.
std::string config_of(const opening::OpenCheckpoint& source) {
  const auto& carried = source.carried;
  const bool has_config = opening::is_stage(source)
                              ? std::find(carried.begin(), carried.end(), "config.json") != carried.end()
                              : os::exists(source.path_of("config.json"));
  return has_config ? opening::read_carried(source, "config.json", interop::most_text_bytes("config.json")) : "";
}

const interop::FormTraits& form_of(const ConvertOptions& options) { return interop::form_called(options.to).traits(); }

/// A planned conversion: its source, its result, and the files around the tensors.
struct Conversion {
  codes::View view;      ///< view of the source
  plan::TensorMap map;   ///< makes the form's tensors from the view's
  codes::View targets;   ///< the view, seen through the map
  bool casts = false;    ///< the dtype of some targets is not that of their sources
  CodedCatalog catalog;  ///< made from the targets
  base::Json rebuilt;
  plan::FileLayout layout;
  std::vector<std::string> carried;             ///< files of the source that are taken along
  std::vector<std::string> notes_of_carried;    ///< about files left behind
  std::map<std::string, std::string> metadata;  ///< for the manifest, in addition to the source's
};

/// Options for reading with the rest of the budget, after windows of this size, memory for decoding, and moments to be
/// coded. Reading always gets at least half of the budget.
checkpoint::ReadOptions reading_part(const ConvertOptions& options, const Conversion& conversion,
                                     std::uint64_t window_bytes) {
  checkpoint::ReadOptions part = reading_half(options.read);
  const bool copies_only = conversion.map.pieces.empty() && !conversion.casts;
  if (conversion.view.as_stored) part.decoding_bytes = copies_only ? 0 : window_bytes;
  const std::uint64_t taken =
      io::WindowPool::kBuffers * window_bytes + batch_bytes(options.write) + part.decoding_bytes.value_or(0);
  const std::uint64_t all = options.read.memory_budget_bytes;
  if (taken < all) part.memory_budget_bytes = std::max(part.memory_budget_bytes, all - taken);
  return part;
}

/// A window size of at most `window_bytes`. A reading window should hold all blocks that a writing window needs: the
/// bytes needed can begin and end inside blocks of the source, and lie in two files.
std::uint64_t window_beside_reading(std::uint64_t window_bytes, const ConvertOptions& options,
                                    const Conversion& conversion) {
  const std::uint64_t block_bytes = options.write.files.block_bytes;
  const auto is_too_large = [&](std::uint64_t bytes) {
    const std::uint64_t budget = reading_part(options, conversion, bytes).memory_budget_bytes;
    return budget / (io::WindowPool::kBuffers + 1) / block_bytes < bytes / block_bytes + 2;  // as split_budget()
  };
  while (window_bytes > block_bytes && is_too_large(window_bytes)) window_bytes -= block_bytes;
  return window_bytes;
}

/// Whether the ranks' blobs are kept: some forms have no place for them.
bool has_blobs(const plan::Catalog& catalog, std::uint64_t rank_blobs) {
  const auto is_blob = [](const plan::CatalogTensor& tensor) { return tensor.section == format::kRankSection; };
  return rank_blobs != 0 && static_cast<std::uint64_t>(std::ranges::count_if(catalog.tensors, is_blob)) == rank_blobs;
}

root::CommitContent content_of(const opening::OpenCheckpoint& source, const Conversion& conversion,
                               const ConvertOptions& options) {
  root::CommitContent content = root::make_content(conversion.layout);
  if (source.manifest) {
    const format::Manifest& old = *source.manifest;
    content.manifest.has_step = old.has_step;
    content.manifest.step = old.step;
    content.manifest.run_id = old.run_id;
    content.manifest.part = old.part;
    content.manifest.user_metadata = old.user_metadata;
    content.manifest.metrics = old.metrics;
    content.manifest.layout = old.layout;
    content.manifest.ranks = old.ranks;
    const std::uint64_t blobs = checkpoint::rank_blobs(source).size();
    if (has_blobs(conversion.catalog.catalog, blobs)) content.manifest.rank_blobs = blobs;
  } else {
    content.manifest.has_step = source.about.step.has_value();
    content.manifest.step = source.about.step.value_or(0);
    content.manifest.user_metadata = source.about.values;
  }
  for (const auto& [key, value] : conversion.metadata) {
    if (value.empty()) {
      content.manifest.user_metadata.erase(key);
    } else {
      content.manifest.user_metadata[key] = value;
    }
  }
  if (form_of(options).is_sharded) content.manifest.layout = options.layout.value_or("");
  describe_codes(source, conversion.view, content.manifest);
  for (const PairToCode& pair : conversion.catalog.pairs) {
    content.manifest.quantisation[pair.tensor.section] = options.quant;
  }
  content.manifest.form = options.to;
  if (!conversion.rebuilt.empty()) content.manifest.extra[format::kRebuiltKey].update(conversion.rebuilt);
  return content;
}

/// Adds the files that rank 0 writes besides the data files: those carried along, and the layout's indexes.
void add_carried(const opening::OpenCheckpoint& source, const std::vector<std::string>& files,
                 const plan::FileLayout& layout, root::CommitContent& content) {
  content.carried = streams_of(source, files);
  for (const auto& [name, text] : layout.index_files) {
    const auto bytes = base::as_bytes(text);
    content.carried.insert_or_assign(name, base::Bytes(bytes.begin(), bytes.end()));
  }
}

bool is_codec(const std::string& quant) { return quant != "keep" && quant != "off"; }

std::map<std::string, const quant::Codec*> codecs_of(const ConvertOptions& options) {
  if (!is_codec(options.quant)) return {};
  return {{"optimizer", &quant::find_codec(options.quant)}};
}

interop::StateToWrite state_of(const opening::OpenCheckpoint& source, const std::string& config,
                               const ConvertOptions& options) {
  interop::StateToWrite state;
  state.place = source.directory.string();
  state.is_foreign = !source.manifest.has_value();
  state.values = source.manifest ? source.manifest->user_metadata : source.about.values;
  state.quantised = source.quantised;
  state.keeps_names = options.keep_names;
  if (!config.empty() && interop::form_called(options.to).reads_config(state)) state.config = config;
  state.omits_weights = source.manifest && source.manifest->extra.contains(format::kRebuiltKey);
  if (!source.manifest) {
    state.step = source.about.step;
  } else if (source.manifest->has_step) {
    state.step = source.manifest->step;
  }
  return state;
}

/// The form's tensors as they are written: without elided weights, with moments coded. `rebuilt`: for the manifest.
CodedCatalog coded_catalog_of(const plan::Catalog& targets, const ConvertOptions& options, base::Json& rebuilt,
                              interop::Notes& notes) {
  const codes::Kept kept = codes::elide(targets, options.write.quantisation);
  rebuilt = kept.rebuilt;
  if (!kept.idle.empty()) notes.omit(kept.idle);
  plan::Catalog left;
  for (const std::uint32_t number : kept.numbers) left.tensors.push_back(targets.tensors[number]);
  CodedCatalog content = code_catalog(left, codecs_of(options));
  for (TensorOrigin& origin : content.origins) {
    if (!origin.pair) origin.source = kept.numbers[origin.source];
  }
  for (PairToCode& pair : content.pairs) {
    pair.first = kept.numbers[pair.first];
    pair.second = kept.numbers[pair.second];
  }
  if (is_codec(options.quant) && content.pairs.empty()) {
    notes.omit(fmt::format("nothing is coded in {}: section optimizer has no pair of Adam moments by their names",
                           options.quant));
  }
  return content;
}

/// The options for the files, with the source's metadata if the form keeps it.
FileOptions file_options_of(const opening::OpenCheckpoint& source, const Chosen& chosen, const ConvertOptions& options,
                            interop::Notes& notes) {
  FileOptions files = options.write.files;
  if (!form_of(options).keeps_metadata) return files;
  note_disputed_metadata(source, notes);
  files.metadata = source.metadata;
  drop_aliases(chosen, files.metadata, notes);
  files.metadata.insert(options.write.files.metadata.begin(), options.write.files.metadata.end());
  return files;
}

/// Calls `make`. If a selection leaves tensors out, its errors about the state say so.
template <class Make>
auto saying_what_is_left_out(std::size_t left_out, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (left_out == 0 || error.kind() != ErrorKind::kUsage) throw;
    throw Error(ErrorKind::kUsage,
                fmt::format("{} (--section and --name leave {} out)", error.what(), base::counted(left_out, "tensor")));
  }
}

/// Plans the conversion; calls the form's functions in the order that form.hpp requires.
Conversion plan_conversion(const opening::OpenCheckpoint& source, const std::string& config,
                           const fs::path& destination, const ConvertOptions& options, interop::Notes& notes) {
  const interop::Form& form = interop::form_called(options.to);
  Quantisation quantisation = options.write.quantisation;
  quantisation.codecs = {{"optimizer", is_codec(options.quant) ? options.quant : "off"}};
  form.check_options(quantisation, options.processes);
  Conversion conversion;
  conversion.carried = files_to_carry(source, conversion.notes_of_carried);
  interop::StateToWrite state = state_of(source, config, options);
  state.carried = conversion.carried;
  conversion.view = view_for(source, config, destination, options, notes);
  const plan::Catalog sources = catalog_of(conversion.view);
  const std::vector<std::uint32_t> numbers = numbers_to_convert(source, conversion.view, sources, options, notes);
  const std::size_t left_out = sources.tensors.size() - numbers.size();
  plan::TensorMap& map = conversion.map = saying_what_is_left_out(left_out, [&] {
    if (left_out == 0) return form.map(sources, state, options.processes, notes);
    plan::TensorMap made = form.map(part_of(sources, numbers), state, options.processes, notes);
    use_all_sources(made, numbers);
    return made;
  });
  plan::check_map(map, sources);
  if (form_of(options).keeps_metadata) check_sections(map.catalog);
  if (conversion.view.as_stored) {
    std::erase_if(conversion.view.pairs, [&](const codes::CodedPair& pair) {
      return !std::ranges::binary_search(numbers, pair.stored.at(0));
    });
  }
  conversion.targets = codes::mapped_view(conversion.view, map);
  conversion.casts = cast_as_asked(source, map.catalog, conversion.targets, config, options, notes);
  const CodedCatalog& content = conversion.catalog = coded_catalog_of(map.catalog, options, conversion.rebuilt, notes);
  state.keeps_codes = conversion.view.as_stored && content.pairs.empty();
  const auto checked = saying_what_is_left_out(left_out, [&] {
    auto made = form.check(plan::PackedCatalog(content.catalog), {});
    std::string problem = made->problem();
    if (!problem.empty() && left_out != 0) throw Error(ErrorKind::kUsage, problem);
    if (!problem.empty()) notes.omit(std::move(problem));
    return made;
  });
  conversion.layout = form.lay_out(
      content.catalog, {file_options_of(source, {sources, numbers}, options, notes), options.layout, options.processes},
      state, notes);
  interop::FormFiles files = checked->files_beside(std::move(conversion.layout.index_files), state, options.processes);
  conversion.layout.index_files = std::move(files.texts);
  conversion.metadata = std::move(files.values);
  notes.append(files.notes);
  return conversion;
}

}  // namespace

ConvertReport convert(comm::Communicator& communicator, const opening::Parts& where, const fs::path& given,
                      const ConvertOptions& options) {
  const fs::path destination = given.has_filename() ? given : given.parent_path();  // "a/b/" becomes "a/b"
  const checkpoint::ProgressScope progress(options.write.progress);
  os::Access access;
  comm::agree(communicator, "look for the group",
              [&] { access = os::access_of(options.write.files.mode, options.write.files.group); });
  const os::AccessScope access_of_files(access);
  checkpoint::Call call(communicator);
  call.begin("plan");
  const opening::OpenCheckpoint source = opening::open_checkpoint(communicator, where, options.read.allowed);
  comm::agree(communicator, "look for the destination", [&] { refuse_inside(where.paths, destination); });
  std::string config;
  comm::agree_on_root(communicator, "read config.json", 0, [&] {
    const bool is_used =
        options.dtype || (!opening::is_stage_name(destination) &&
                          interop::form_called(options.to).reads_config(state_of(source, "", options)));
    if (is_used) config = config_of(source);
  });
  communicator.share(config, 0);
  if (opening::is_stage_name(destination)) {
    return convert_to_stage(communicator, source, destination, config, options, call);
  }
  ConvertReport result;
  Conversion conversion;
  checkpoint::MemorySplit budget;
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  comm::agree(communicator, "lay out the files", [&] {
    note_omissions(source, result.notes);
    planning::check_file_options(options.write.files);
    conversion = plan_conversion(source, config, destination, options, result.notes);
    planning::check_block_table(conversion.layout.files, options.write.files.block_bytes);
    for (const auto& [name, text] : conversion.layout.index_files) planning::check_index(name, text.size());
    budget = checkpoint::split_budget(options.write.limits.memory_budget_bytes, options.write.files.block_bytes);
    // Each window of a transposed weight requires reading the whole weight, so windows must be few and large.
    if (!conversion.map.pieces.empty()) budget.window_bytes = budget.most_window_bytes;
    budget.window_bytes = window_beside_reading(budget.window_bytes, options, conversion);
    groups = plan::section_groups(conversion.layout.stored);
    ranges = plan::whole_files(checkpoint::file_sizes(conversion.layout.stored));
  });
  const CodedCatalog& catalog = conversion.catalog;
  const plan::FileLayout& layout = conversion.layout;
  const checkpoint::EngineRequest request{options.write.engine.name, options.write.engine.aggregators_per_node};
  const checkpoint::EngineChoice choice = checkpoint::choose_engine(communicator, request, destination);
  const plan::ExtentMap extents =
      checkpoint::assign_extents(communicator, std::move(groups), std::move(ranges), options.write.files.block_bytes,
                                 choice, checkpoint::Access::kWrite);
  if (conversion.map.pieces.empty()) budget = budget.fitted_to(extents);
  std::vector<plan::Window> windows;
  root::CommitContent content;
  comm::agree(communicator, "lay out the files", [&] {
    windows = plan::cut_windows(extents.of(communicator.rank()), budget.window_bytes, options.write.files.block_bytes);
    content = content_of(source, conversion, options);
    const std::vector<std::string>& carried = conversion.carried;
    result.notes.omit_all(conversion.notes_of_carried);
    planning::check_taken_names(form_of(options).is_sharded ? plan::Catalog() : catalog.catalog, carried);
    planning::check_manifest(content.manifest, layout.files, carried);
    if (communicator.rank() == 0) add_carried(source, carried, layout, content);
  });
  const io::WindowPool buffers(communicator, checkpoint::largest_buffer(windows));

  checkpoint::ReadOptions read_options;
  comm::agree(communicator, "plan the reading",
              [&] { read_options = reading_part(options, conversion, budget.window_bytes); });
  std::uint64_t overflows = 0;
  conversion.targets.overflows = &overflows;
  const auto reader = make_reader(communicator, source, conversion.targets, read_options);
  const Quantisation& quantisation = options.write.quantisation;
  WindowFiller filler(
      communicator, {layout, catalog, *reader, windows, batch_bytes(options.write), codes::measuring_of(quantisation)});
  root::CommitTarget target;
  comm::agree(communicator, "describe the checkpoint", [&] {
    result.report = checkpoint::report_of(layout.stored, choice);
    result.report.directory = destination;
    target = {destination, {options.write.overwrite, options.write.overwrite_foreign}, false, options.write.read_back};
  });
  call.begin("commit");
  root::Commit commit(communicator, std::move(target));  // its destructor removes an unfinished checkpoint
  const auto fill = [&](std::uint64_t, const io::WindowBuffer& window) {
    const std::uint64_t bytes = filler.fill(window);
    call.add_bytes(bytes);
    return bytes;
  };
  const fs::path& partial = commit.partial();
  checkpoint::FileWriter files(communicator, {choice.name, options.write.engine.hints, partial, layout, extents,
                                              windows, buffers, communicator.max(windows.size())});
  try {
    content.blocks = files.write(std::ref(fill), call);
    std::string warning =
        checkpoint::read_back_data(communicator, partial, content.blocks,
                                   {options.write.read_back, content.manifest.step, buffers.idle_memory()}, call);
    comm::agree(communicator, "report", [&] {
      result.report.engine_hints = files.hints();
      if (!warning.empty()) result.report.warnings.push_back(std::move(warning));
    });
    if (!catalog.pairs.empty()) {
      codes::add_coding_report(codes::collect_errors(
                                   communicator, [&](std::uint32_t pair) { return catalog.pairs[pair].tensor; },
                                   filler.errors(), quantisation),
                               result.report);
    }
    note_overflows(communicator, overflows, options, result.notes);
    call.begin("commit");
    commit.finish(std::move(content));
  } catch (const comm::AgreedError&) {  // all ranks reach this, as in a save
    reader->close_after_error();
    throw;
  }
  call.report(result.report);
  return result;
}

codes::View view_for(const opening::OpenCheckpoint& source, const std::string& config,
                     const std::filesystem::path& destination, const ConvertOptions& options, interop::Notes& notes) {
  if (options.decode_by_reciprocals) refuse_idle_reciprocals({&source});
  const interop::FormTraits& form = form_of(options);
  const bool holds_values_only = !form.holds_codes || opening::is_stage_name(destination);
  const std::string_view what = form.holds_codes ? "staging files" : form.what;
  if (is_codec(options.quant)) {
    (void)quant::find_codec(options.quant);
    if (holds_values_only) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("{} hold no codes: convert to Hugging Face files to have moments in {}", what, options.quant));
    }
  }
  if (options.quant == "keep" && !holds_values_only) {
    std::string why =
        interop::form_called(options.to).why_decoded(state_of(source, config, options), options.processes);
    if (why.empty() && options.decode_by_reciprocals) {
      throw Error(
          ErrorKind::kUsage,
          "decoding by reciprocals has no effect on codes that are kept: leave the option out, or give --quant off");
    }
    if (why.empty()) return codes::stored_view(source);
    notes.inform(std::move(why));
    return codes::decoded_view(source, {options.decode_by_reciprocals, false});
  }
  codes::View view = codes::decoded_view(source, {options.decode_by_reciprocals, false});
  if (!view.as_stored && options.quant == "keep") {
    const auto made = std::count_if(view.tensors.begin(), view.tensors.end(), [](const codes::ViewTensor& tensor) {
      return tensor.origin != codes::Origin::kStored;
    });
    notes.inform(fmt::format("{} hold no codes and leave no weights out: {} decoded or made from others", what,
                             base::counted(static_cast<std::uint64_t>(made), "tensor is", "tensors are")));
  }
  return view;
}

std::vector<std::uint32_t> numbers_to_convert(const opening::OpenCheckpoint& source, const codes::View& view,
                                              const plan::Catalog& sources, const ConvertOptions& options,
                                              interop::Notes& notes) {
  if (view.as_stored && is_limited(options.select)) refuse_omitted(source, "--section and --name");
  std::vector<std::uint32_t> numbers = chosen(view, sources, options.select, source.directory.string());
  if (!source.manifest) {
    if (sources.tensors.empty()) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}' has no tensors, so there is nothing to convert", os::shown(source.directory)));
    }
    refuse_empty_weights(source, sources, numbers);
  }
  if (const std::size_t all = sources.tensors.size(); numbers.size() != all) {
    notes.inform(fmt::format("{} of {} converted, as --section and --name say", numbers.size(),
                             base::counted(all, "tensor is", "tensors are")));
  }
  return numbers;
}

bool cast_as_asked(const opening::OpenCheckpoint& source, plan::Catalog& targets, codes::View& view,
                   const std::string& config, const ConvertOptions& options, interop::Notes& notes) {
  if (!options.dtype) return false;
  const Quantisation& quantisation = options.write.quantisation;
  if (quantisation.remove_master_weight || quantisation.skip_save_model_weight) {
    throw Error(ErrorKind::kUsage,
                "--dtype rounds weights, and the weights that --remove-master-weight and "
                "--skip-save-model-weight leave out would be made from others than they were: "
                "convert twice, or leave one out");
  }
  if (options.quant == "keep" && !opening::is_stage(source)) refuse_omitted(source, "--dtype");
  return cast_weights(targets, view, *options.dtype, config, notes) != 0;
}

void note_overflows(comm::Communicator& communicator, std::uint64_t overflows, const ConvertOptions& options,
                    interop::Notes& notes) {
  if (!options.dtype) return;
  const std::uint64_t all = communicator.sum(overflows);
  comm::agree(communicator, "note warnings", [&] {
    if (all == 0) return;
    notes.omit(fmt::format("{} too large for {} and became infinite",
                           base::counted(all, "value of section model is", "values of section model are"),
                           name_of(*options.dtype)));
  });
}

plan::Catalog catalog_of(const codes::View& view) {
  std::vector<plan::CatalogTensor> tensors;
  for (const codes::ViewTensor& tensor : view.tensors) {
    tensors.push_back({std::string(tensor.section),
                       std::string(tensor.name),
                       tensor.dtype,
                       {tensor.shape.begin(), tensor.shape.end()},
                       {}});
  }
  if (view.as_stored) {
    for (const codes::CodedPair& pair : view.pairs)
      tensors[pair.stored.at(0)].coding = format::encode_coding(*pair.moments);
  }
  return plan::make_catalog(std::move(tensors));
}

base::Json unknown_keys(const opening::OpenCheckpoint& source) {
  base::Json keys = source.manifest ? source.manifest->extra : base::Json::object();
  for (const char* key : {format::kRebuiltKey, checkpoint::kEngineKey, checkpoint::kHintsKey}) keys.take(key);
  return keys;
}

void note_omissions(const opening::OpenCheckpoint& source, interop::Notes& notes) {
  notes.omit_all(source.warnings);
  for (const std::string& what : source.about.left) notes.omit("not taken over: " + what);
}

void note_disputed_metadata(const opening::OpenCheckpoint& source, interop::Notes& notes) {
  if (source.disputed_metadata.empty()) return;
  notes.omit(fmt::format("the source's files disagree about metadata {}; the first file's is kept",
                         interop::list_some(source.disputed_metadata)));
}

void describe_codes(const opening::OpenCheckpoint& source, const codes::View& view, format::Manifest& manifest) {
  manifest.quantisation = base::Json::object();
  manifest.extra = unknown_keys(source);
  if (!view.as_stored) return;
  for (const codes::CodedPair& pair : view.pairs) manifest.quantisation[pair.moments->section] = pair.moments->codec;
  if (!source.manifest) return;
  const base::Json* rebuilt = source.manifest->extra.find(format::kRebuiltKey);
  if (rebuilt != nullptr) manifest.extra[format::kRebuiltKey] = *rebuilt;
}

std::vector<std::string> files_to_carry(const opening::OpenCheckpoint& source, std::vector<std::string>& notes) {
  const auto is_listed = [&](const std::string& name) {
    if (opening::is_stage(source)) return true;
    if (!source.manifest) return false;
    return std::ranges::find(source.manifest->carried_files, name, &format::ManifestFile::name) !=
           source.manifest->carried_files.end();
  };
  std::vector<std::string> taken;
  std::vector<std::string> left;
  const std::vector<std::string>& read = source.about.sources;
  const interop::Dialect* dialect = interop::dialect_called(source.about.dialect);
  for (const std::string& name : source.carried) {
    const bool is_resumed_from = dialect != nullptr && dialect->carries(name);
    if (std::ranges::find(read, name) != read.end() && !is_resumed_from) continue;
    if (is_listed(name) || interop::belongs_to_model(name) || is_resumed_from) {
      taken.push_back(name);
    } else if (!interop::is_bystander(name)) {
      left.push_back(name);
    }
  }
  if (!left.empty()) {
    notes.push_back(fmt::format("left behind, since neither weights that are read nor small files of a model: {}",
                                interop::list_some(left)));
  }
  return taken;
}

std::map<std::string, base::ByteStream> streams_of(const opening::OpenCheckpoint& source,
                                                   const std::vector<std::string>& files) {
  std::map<std::string, base::ByteStream> streams;
  for (const std::string& name : files) streams.emplace(name, opening::carried_stream(source, name));
  return streams;
}

checkpoint::ReadOptions reading_half(const checkpoint::ReadOptions& options) {
  checkpoint::ReadOptions half = options;
  half.memory_budget_bytes =
      std::max(options.memory_budget_bytes / 2, checkpoint::smallest_budget(format::kDefaultBlockBytes));
  return half;
}

}  // namespace cairn::conversion
