#include "checkpoint/targets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "base/hints.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/check_options.hpp"
#include "comm/agree.hpp"
#include "format/manifest.hpp"
#include "plan/catalog.hpp"
#include "plan/strides.hpp"
#include "planning/describe.hpp"
#include "quant/cast.hpp"
#include "shard/box_math.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

/// The dtype and shape that a target expects of the stored tensor.
struct Expected {
  explicit Expected(const Target& target) : dtype(target.dtype), shape(target.shape) {}
  DType dtype;
  std::vector<std::uint64_t> shape;
};

bool is_of_type(const codes::ViewTensor& tensor, const Expected& expected) {
  return tensor.dtype == expected.dtype && std::ranges::equal(tensor.shape, expected.shape);
}

/// Whether all sizes but the number of rows are equal.
bool differs_in_rows(const codes::ViewTensor& stored, const Target& target) {
  const std::size_t dimensions = target.shape.size();
  return dimensions != 0 && stored.shape.size() == dimensions && stored.shape[0] != target.shape[0] &&
         bits_of(stored.dtype) >= 8 && std::ranges::equal(stored.shape.subspan(1), std::span(target.shape).subspan(1));
}

/// The targets that may have another number of rows (LoadOptions::pad_rows).
class RowPadding {
 public:
  explicit RowPadding(const std::vector<std::string>& patterns) : is_empty_(patterns.empty()), names_({{}, patterns}) {}

  [[nodiscard]] Expected expected(const codes::ViewTensor& stored, const Target& target) const {
    Expected expected(target);
    const bool may_differ = !is_empty_ && names_.selects(target.section, target.name);
    if (may_differ && differs_in_rows(stored, target)) expected.shape[0] = stored.shape[0];
    return expected;
  }

 private:
  bool is_empty_;
  shard::Selector names_;
};

/// Cuts boxes of a target, from number `first` on, to the rows that are stored.
void cut_rows(std::vector<plan::MemoryBox>& boxes, std::size_t first, std::uint64_t rows, DType dtype) {
  for (std::size_t i = first; i < boxes.size(); ++i) {
    plan::MemoryBox& box = boxes[i];
    const std::uint64_t left = rows - std::min(rows, box.box.offset[0]);
    if (box.box.shape[0] <= left) continue;
    box.box.shape[0] = left;
    const std::uint64_t elements =
        box.strides.empty() ? shard::elements_of(box.box) : plan::span_elements(box.box.shape, box.strides).value_or(0);
    box.bytes = box.bytes.first(elements * bits_of(dtype) / 8);
  }
  const auto has_none = [](const plan::MemoryBox& box) { return box.box.shape[0] == 0; };
  boxes.erase(std::remove_if(boxes.begin() + static_cast<std::ptrdiff_t>(first), boxes.end(), has_none), boxes.end());
}

/// The part with the target's name and type; otherwise the view's tensor of that name; otherwise the part of that name.
std::optional<std::uint32_t> number_of(const codes::View& view, const plan::NumbersByName& numbers,
                                       const plan::NumbersByName& parts, const Target& target) {
  const auto at = numbers.find({target.section, target.name});
  const auto part = parts.find({target.section, target.name});
  if (part != parts.end() && (at == numbers.end() || is_of_type(view.at(part->second), Expected(target)))) {
    return part->second;
  }
  if (at == numbers.end()) return std::nullopt;
  return at->second;
}

Error not_of_type(const opening::OpenCheckpoint& opened, const codes::ViewTensor& stored, const Target& target,
                  const Expected& expected, bool can_convert) {
  const char* hint = can_convert ? "; LoadOptions::cast_floats would convert it" : "";
  if (!std::ranges::equal(stored.shape, expected.shape) && differs_in_rows(stored, target)) {
    hint = "; LoadOptions::pad_rows would load the rows that both have";
  }
  return {ErrorKind::kState,
          fmt::format("'{}': tensor '{}' (section {}) is {} [{}], expected {} [{}]{}",
                      base::printable(opened.directory.string()), base::printable(target.name),
                      base::printable(target.section), name_of(stored.dtype), base::joined(stored.shape),
                      name_of(target.dtype), base::joined(target.shape), hint)};
}

/// Whether the shapes are equal, and stored values can be converted to the target's dtype in one step. A tensor that
/// the view widens counts as its source, since the values are the same.
bool can_convert_to(const codes::View& view, const codes::ViewTensor& stored, const Expected& target) {
  if (!std::ranges::equal(stored.shape, target.shape)) return false;
  const auto can_convert = [&](const codes::ViewTensor& tensor) {
    if (tensor.origin != codes::Origin::kCast) return quant::can_convert(tensor.dtype, target.dtype);
    const DType source = view.stored->tensors[tensor.source].dtype;
    return bits_of(source) < bits_of(tensor.dtype) && quant::can_convert(source, target.dtype);
  };
  if (stored.origin != codes::Origin::kMapped) return can_convert(stored);
  return std::ranges::all_of(view.mapped.at(stored.source),
                             [&](const plan::MapPiece& piece) { return can_convert(view.sources.at(piece.source)); });
}

/// The tensors of the checkpoint that the user of a missing name may have meant, as the end of a message.
std::string words_of_near(const opening::OpenCheckpoint& opened, const codes::View& view, const Target& target) {
  std::vector<std::string> sections;       // in the order of the catalog
  std::vector<std::string> with_the_name;  // sections that have a tensor of this name
  base::NearestName nearest(target.name);
  codes::ViewCursor cursor(opened, view);
  for (std::uint32_t i = 0; i < cursor.size(); ++i) {
    const codes::ViewTensor seen = cursor.at(i);
    if (seen.section == format::kRankSection) continue;
    if (sections.empty() || sections.back() != seen.section) sections.emplace_back(seen.section);
    if (seen.name == target.name) with_the_name.emplace_back(seen.section);
    if (seen.section == target.section) nearest.consider(seen.name);
  }
  if (!with_the_name.empty()) {
    return fmt::format("; it is in section{} {}", with_the_name.size() == 1 ? "" : "s",
                       base::quoted_names(with_the_name));
  }
  if (sections.empty()) return "; it has no tensors at all";
  if (std::ranges::find(sections, target.section) == sections.end()) {
    return fmt::format("; it has no such section, only {}", base::quoted_names(sections));
  }
  if (!nearest.found().empty()) return fmt::format("; the nearest name is '{}'", base::printable(nearest.found()));
  return "; Checkpointer::tensors() and 'cairn inspect' list what it has";
}

/// Throws if the target is not among the tensors that the checkpoint of a part holds by its own description.
void refuse_part(const opening::OpenCheckpoint& opened, const format::Part& part, const Target& target) {
  const auto selects = [&](const Selection& selection) {
    return shard::Selector(selection).selects(target.section, target.name);
  };
  const bool is_left_out = std::ranges::find(part.without, target.section) != part.without.end();
  if (!is_left_out && (part.only.empty() || std::ranges::any_of(part.only, selects))) return;
  const std::string base = format::words_of_base(part);
  throw Error(ErrorKind::kNotFound,
              fmt::format("'{}' holds only a part of a state ({}), without tensor '{}' of section '{}': {}",
                          base::printable(opened.directory.string()), format::words_of_tensors(part),
                          base::printable(target.name), base::printable(target.section),
                          base.empty() ? "load the others from the checkpoint that has them"
                                       : fmt::format("load the others from its base, {}", base)),
              {0, {}, -1, Missing::kPart});
}

void add_missing(const opening::OpenCheckpoint& opened, const codes::View& view, const Target& target,
                 FoundTargets& found) {
  if (!target.optional) {
    if (opened.manifest && opened.manifest->part) refuse_part(opened, *opened.manifest->part, target);
    const auto alias = opened.metadata.find(target.name);  // interop/aliases.hpp
    const std::string hint =
        alias != opened.metadata.end() && opened.stored.tensors.catalog().find(target.section, alias->second)
            ? fmt::format("; its metadata say that it is the same as '{}': load that one",
                          base::printable(alias->second))
            : words_of_near(opened, view, target);
    throw Error(ErrorKind::kNotFound,
                fmt::format("'{}' has no tensor '{}' in section '{}'{}", base::printable(opened.directory.string()),
                            base::printable(target.name), base::printable(target.section), hint),
                {0, {}, -1, Missing::kTensor});
  }
  found.missing.push_back({target.section, target.name});
}

/// `loaded`: number of the tensor to load; it differs from `number` if the tensor is cast.
void add_found(const Target& target, const Expected& expected, std::uint32_t number, std::uint32_t loaded,
               FoundTargets& found) {
  found.numbers.push_back(number);
  const std::size_t first = found.boxes.size();
  planning::add_boxes(target, loaded, found.boxes);
  if (expected.shape != target.shape) cut_rows(found.boxes, first, expected.shape[0], target.dtype);
  for (std::size_t i = first; i < found.boxes.size(); ++i) {
    found.bytes += shard::elements_of(found.boxes[i].box) * bits_of(target.dtype) / 8;
  }
}

/// For a checkpoint that is loaded in stored form: makes objects only for tensors that are wanted.
void find_as_stored(const opening::OpenCheckpoint& opened, const codes::View& view,
                    std::span<const Target* const> targets, const RowPadding& padding, FoundTargets& found) {
  std::vector<plan::CatalogKey> keys;
  keys.reserve(targets.size());
  for (const Target* target : targets) keys.push_back({target->section, target->name});
  const auto numbers = opened.stored.tensors.catalog().find_all(keys);
  plan::Seeker seeker(opened.stored.tensors);
  std::size_t boxes = 0;
  for (const Target* target : targets) boxes += target->boxes.size();
  found.boxes.reserve(boxes);
  found.numbers.reserve(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = *targets[i];
    if (!numbers[i]) {
      add_missing(opened, view, target, found);
      continue;
    }
    const format::PlacedTensor placed = seeker.at(*numbers[i]).placed();
    const codes::ViewTensor stored{placed.section, placed.name, placed.dtype, placed.shape};
    const Expected expected = padding.expected(stored, target);
    if (!is_of_type(stored, expected)) {
      throw not_of_type(opened, stored, target, expected, can_convert_to(view, stored, expected));
    }
    add_found(target, expected, *numbers[i], *numbers[i], found);
  }
}

void find_in_view(const opening::OpenCheckpoint& opened, const codes::View& view,
                  std::span<const Target* const> targets, bool cast_floats, const RowPadding& padding,
                  FoundTargets& found) {
  const plan::NumbersByName numbers = plan::numbers_by_name(view.tensors);
  plan::NumbersByName parts = plan::numbers_by_name(view.parts);
  for (auto& [key, number] : parts) number += static_cast<std::uint32_t>(view.tensors.size());
  for (const Target* const wanted : targets) {
    const Target& target = *wanted;
    const std::optional<std::uint32_t> number = number_of(view, numbers, parts, target);
    if (!number) {
      add_missing(opened, view, target, found);
      continue;
    }
    const codes::ViewTensor& stored = view.at(*number);
    std::uint32_t loaded = *number;
    const Expected expected = padding.expected(stored, target);
    if (!is_of_type(stored, expected)) {
      const bool can_convert = can_convert_to(view, stored, expected);
      if (!can_convert || !cast_floats) throw not_of_type(opened, stored, target, expected, can_convert);
      loaded = static_cast<std::uint32_t>(view.tensors.size() + view.parts.size() + found.casts.size());
      codes::ViewTensor& cast = found.casts.emplace_back(stored);
      cast.dtype = target.dtype;
      if (cast.origin == codes::Origin::kStored) cast.origin = codes::Origin::kCast;
    }
    add_found(target, expected, *number, loaded, found);
  }
}

}  // namespace

namespace {

bool is_left_out(std::string_view section, const LoadOptions& options) {
  return options.no_load_optim && section == format::kOptimizerSection;
}

}  // namespace

FoundTargets find_targets(const opening::OpenCheckpoint& opened, const codes::View& view,
                          std::span<const Target> targets, const LoadOptions& options) {
  const shard::Selector selector(options.select);
  const RowPadding padding(options.pad_rows);
  FoundTargets found;
  std::vector<const Target*> selected;
  for (const Target& target : targets) {
    if (!selector.selects(target.section, target.name) || is_left_out(target.section, options)) continue;
    planning::check_shards({&target, 1});
    selected.push_back(&target);
  }
  planning::check_distinct(selected);
  found.targets = selected.size();
  if (view.stored) {
    find_in_view(opened, view, selected, options.cast_floats, padding, found);
  } else {
    find_as_stored(opened, view, selected, padding, found);
  }
  return found;
}

codes::View view_to_load(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                         const Options& options, const LoadOptions& load_options) {
  codes::View view;
  agree_on_load_options(communicator, load_options);
  comm::agree(communicator, "describe what to load", [&] {
    const bool needs_all = load_options.cast_floats || load_options.list_not_loaded;
    view = needs_all ? codes::decoded_view(opened, codes::view_options(options))
                     : codes::loading_view(opened, codes::view_options(options));
    if (load_options.cast_floats) view.as_stored = false;  // a rank may want another dtype
  });
  return view;
}

namespace {

/// Whether a user who loads the whole saved state has a target for the tensor.
bool counts_as_stored(const codes::View& view, const codes::ViewTensor& tensor) {
  if (tensor.section == format::kRankSection) return false;
  return !(view.masters_of_model && tensor.section == format::kMasterWeightsSection);
}

/// Collective: on rank 0, the selected tensors of the view that are in no rank's `numbers`.
std::vector<TensorName> not_loaded_of(comm::Communicator& communicator, const codes::View& view,
                                      std::span<const std::uint32_t> numbers, const LoadOptions& options) {
  constexpr std::uint32_t kBits = 64;
  std::vector<std::uint64_t> words;
  comm::agree(communicator, "find what is not loaded", [&] {
    words.resize(base::ceil_div(view.tensors.size(), kBits));
    for (const std::uint32_t number : numbers) {  // codes and scales, which users do not save, have higher numbers
      if (number < view.tensors.size()) words[number / kBits] |= std::uint64_t{1} << number % kBits;
    }
  });
  communicator.all_reduce(words, comm::ReduceOp::kOr);
  std::vector<TensorName> names;
  comm::agree_on_root(communicator, "list what is not loaded", 0, [&] {
    const shard::Selector selector(options.select);
    for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
      const codes::ViewTensor& tensor = view.tensors[i];
      if ((words[i / kBits] >> i % kBits & 1) != 0 || !counts_as_stored(view, tensor)) continue;
      if (!selector.selects(tensor.section, tensor.name) || is_left_out(tensor.section, options)) continue;
      names.push_back({std::string(tensor.section), std::string(tensor.name)});
    }
    std::ranges::sort(names, {}, [](const TensorName& name) { return std::tie(name.section, name.name); });
  });
  return names;
}

/// Collective: a line for each pattern that matches no target's section or name on any rank. `option`: its name.
std::vector<std::string> idle_patterns(comm::Communicator& communicator, const char* option, const Selection& select,
                                       std::span<const Target> targets) {
  std::vector<std::uint64_t> used(select.sections.size() + select.names.size());
  if (used.empty()) return {};
  comm::agree(communicator, "look for patterns without targets", [&] {
    const auto look = [&](const std::vector<std::string>& patterns, std::size_t first, const auto& text_of_target) {
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        const shard::NamePattern pattern(patterns[i]);
        used[first + i] = std::ranges::any_of(
            targets, [&](const Target& target) { return pattern.match(text_of_target(target)).has_value(); });
      }
    };
    look(select.sections, 0, [](const Target& target) -> const std::string& { return target.section; });
    look(select.names, select.sections.size(), [](const Target& target) -> const std::string& { return target.name; });
  });
  communicator.all_reduce(used, comm::ReduceOp::kOr);
  std::vector<std::string> lines;
  comm::agree(communicator, "note warnings", [&] {
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i] != 0) continue;
      const bool is_section = i < select.sections.size();
      const std::string& text = is_section ? select.sections[i] : select.names[i - select.sections.size()];
      lines.push_back(fmt::format("LoadOptions::{}: no target of any rank has a {} like '{}'", option,
                                  is_section ? "section" : "name", base::printable(text)));
    }
  });
  return lines;
}

/// Collective: a report about the source, with the call's `warnings`, but without the loaded tensors and the times.
Report report_of_load(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                      const EngineChoice& engine, std::vector<std::string> warnings) {
  Report report;
  comm::agree(communicator, "report", [&] {
    report.directory = opened.directory;
    report.engine = engine.name;
    report.engine_reason = engine.reason;
    report.engine_hints = engine.hints;
    report.warnings = opened.warnings;
    std::ranges::move(warnings, std::back_inserter(report.warnings));
    for (const std::string& warning : report.warnings) base::warn_once(warning);
  });
  report.files = opened.stored.files.size();
  return report;
}

}  // namespace

Report load_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened, const LoadRequest& request,
                    codes::View& view, TensorReader& reader, const PhaseClock& whole) {
  FoundTargets found;
  comm::agree(communicator, "describe what to load", [&] {
    found = find_targets(opened, view, request.targets, request.options);
    view.casts = std::move(found.casts);
  });
  const Selection& select = request.options.select;
  const std::uint64_t most_targets = communicator.max(found.targets);
  const bool any_target = communicator.max(request.targets.size()) != 0;
  comm::agree(communicator, "select what to load", [&] {
    const bool has_select = !select.sections.empty() || !select.names.empty();
    const bool leaves_out = request.options.no_load_optim && any_target;
    if (most_targets != 0 || (!has_select && !leaves_out)) return;
    throw Error(ErrorKind::kNotFound,
                has_select ? "LoadOptions::select selects no target of any rank"
                           : "LoadOptions::no_load_optim leaves no target of any rank",
                {0, {}, -1, Missing::kSelected});
  });
  std::vector<std::string> idle = idle_patterns(communicator, "select", select, request.targets);
  std::ranges::move(idle_patterns(communicator, "pad_rows", {{}, request.options.pad_rows}, request.targets),
                    std::back_inserter(idle));
  if (request.options.no_load_optim) {
    const Selection optimizer{{std::string(format::kOptimizerSection)}, {}};
    std::ranges::move(idle_patterns(communicator, "no_load_optim", optimizer, request.targets),
                      std::back_inserter(idle));
  }
  reader.load(found.boxes);

  Report report = report_of_load(communicator, opened, reader.engine(), std::move(idle));
  report.tensors = most_targets;
  report.bytes = communicator.sum(found.bytes);
  report.missing = std::move(found.missing);
  if (request.options.list_not_loaded)
    report.not_loaded = not_loaded_of(communicator, view, found.numbers, request.options);
  report.phases = reader.clock().reduce(communicator);
  report.seconds = whole.slowest_seconds(communicator);
  return report;
}

}  // namespace cairn::checkpoint
