// The JSON form of a layout: mesh, stages, experts and rules. A test parses the examples of README.md in this folder.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/layout_rules.hpp"

namespace cairn::shard {
namespace {

using base::JsonReader;

constexpr const char* kDocument = "layout JSON";

std::uint32_t axis_index(const LayoutRules& rules, const JsonReader& where, const std::string& name) {
  std::string known;
  for (std::uint32_t i = 0; i < rules.axes.size(); ++i) {
    if (rules.axes[i].name == name) return i;
    known += (known.empty() ? "" : ", ") + base::printable(rules.axes[i].name);
  }
  where.fail(fmt::format("unknown axis '{}'; the mesh has: {}", base::printable(name), known));
}

// "axis": "tp", or "axes": ["dp", "tp"] with the slowest first.
AxisGroup read_axes(const LayoutRules& rules, const JsonReader& value) {
  const auto one = value.find("axis");
  const auto many = value.find("axes");
  if (one && many) value.fail("give either 'axis' or 'axes'");
  AxisGroup group;
  if (one) {
    group.push_back(axis_index(rules, *one, one->text()));
  } else {
    const JsonReader list = value.at("axes");
    for (const std::string& name : list.texts()) group.push_back(axis_index(rules, list, name));
  }
  return group;
}

// [["dp", 2], ["tp", 4]], slowest axis first. Returns the product of the sizes.
std::uint64_t read_mesh(LayoutRules& rules, const JsonReader& value) {
  std::vector<Axis> axes;
  std::uint64_t world = 1;
  auto items = value.items();
  if (items.empty()) value.fail("must name at least one axis");
  std::ranges::reverse(items);
  for (const JsonReader& item : items) {
    const auto pair = item.items();
    if (pair.size() != 2) item.fail("must be [name, size]");
    const Axis axis{pair[0].text(), pair[1].number_from(1), world};
    const auto next = base::try_mul(world, axis.size);
    if (!next || *next > std::numeric_limits<std::int32_t>::max())
      value.fail("the axes multiply to more than 2^31 ranks");
    world = *next;
    const auto same = std::ranges::find(rules.axes, axis.name, &Axis::name);
    if (same == rules.axes.end()) {
      if (std::ranges::find(axes, axis.name, &Axis::name) != axes.end()) item.fail("the axis is named twice");
      axes.push_back(axis);
    } else if (same->size != axis.size || same->stride != axis.stride) {
      item.fail(fmt::format("axis '{}' exists with other ranks", base::printable(axis.name)));
    }
  }
  rules.axes.insert(rules.axes.end(), axes.rbegin(), axes.rend());
  return world;
}

ChunkKind read_kind(const JsonReader& value) {
  const std::string& name = value.text();
  if (name == "even") return ChunkKind::kEven;
  if (name == "torch") return ChunkKind::kTorch;
  if (name == "balanced" || name == "uneven") return ChunkKind::kBalanced;
  if (name == "strided") return ChunkKind::kStrided;
  value.fail(
      fmt::format("unknown chunk rule '{}'; allowed: even, torch, balanced, uneven, strided, or a list of boundaries",
                  base::printable(name)));
}

void read_row_map(const JsonReader& value, ChunkSpec& spec) {
  if (const auto parts = value.find("parts")) {
    if (parts->json().is_array()) {
      spec.parts = parts->numbers();
      if (spec.parts.empty()) parts->fail("must not be empty");
    } else {
      spec.equal_parts = parts->number_from(1);
    }
  }
  if (const auto groups = value.find("interleave")) spec.interleave = groups->number_from(1);
  if (const auto period = value.find("period")) spec.period = period->number_from(1);
  const bool has_parts = !spec.parts.empty() || spec.equal_parts > 1;
  if (!has_parts && (spec.interleave != 0 || spec.period != 0)) value.fail("'interleave' and 'period' need 'parts'");
  if (spec.interleave != 0 && spec.period != 0) value.fail("give either 'interleave' or 'period'");
  if (const auto rows = value.find("rows")) {
    if (has_parts || value.has("chunk")) value.fail("'rows' stands alone: no 'chunk', no 'parts'");
    spec.kind = ChunkKind::kRows;
    for (const JsonReader& position : rows->items()) {
      std::vector<Range>& ranges = spec.rows.emplace_back();
      for (const JsonReader& range : position.items()) {
        const auto ends = range.numbers();
        if (ends.size() != 2) range.fail("must be [begin, end]");
        ranges.push_back({ends[0], ends[1]});
      }
    }
  }
}

Cut read_cut(const LayoutRules& rules, const JsonReader& value) {
  value.check_keys(
      {"dim", "axis", "axes", "chunk", "unit", "split_factor", "parts", "interleave", "period", "rows", "scale_of"});
  Cut cut;
  const std::uint64_t dim = value.at("dim").number();
  if (dim > 64) value.at("dim").fail("must be at most 64");
  cut.dim = static_cast<std::uint32_t>(dim);
  cut.axes = read_axes(rules, value);
  if (const auto kind = value.find("chunk")) {
    if (kind->json().is_array()) {
      cut.spec.kind = ChunkKind::kExplicit;
      cut.spec.boundaries = kind->numbers();
    } else {
      cut.spec.kind = read_kind(*kind);
    }
  }
  if (const auto unit = value.find("unit")) cut.spec.unit = unit->number_from(1);
  if (const auto factor = value.find("split_factor")) cut.spec.split_factor = factor->number_from(1);
  read_row_map(value, cut.spec);
  if (cut.spec.kind == ChunkKind::kExplicit && (!cut.spec.parts.empty() || cut.spec.equal_parts > 1)) {
    value.fail("boundaries and 'parts' exclude each other; use 'rows'");
  }
  if (const auto scale = value.find("scale_of")) {
    scale->check_keys({"size", "block"});
    cut.spec.scaled = scale->at("size").number_from(1);
    cut.spec.block = scale->at("block").number_from(1);
  }
  return cut;
}

std::vector<std::uint64_t> read_ranks(const LayoutRules& rules, const JsonReader& value) {
  auto ranks = value.numbers();
  for (const std::uint64_t rank : ranks) {
    if (rank >= rules.world) value.fail(fmt::format("rank {} is outside the {} ranks of the mesh", rank, rules.world));
  }
  return ranks;
}

// "only": {"pp": [0], "ranks": [0, 3]}: all conditions must hold.
void read_only(const LayoutRules& rules, const JsonReader& value, Where& where) {
  for (const auto& [key, item] : value.members()) {
    if (key == "ranks") {
      where.only_ranks = read_ranks(rules, item);
      continue;
    }
    Where::Condition condition{axis_index(rules, value, key), item.numbers()};
    for (const std::uint64_t at : condition.coordinates) {
      if (at >= rules.axes[condition.axis].size) {
        item.fail(fmt::format("axis '{}' has no coordinate {}", base::printable(key), at));
      }
    }
    where.conditions.push_back(std::move(condition));
  }
}

FlatRule read_flat(const LayoutRules& rules, const JsonReader& value) {
  value.check_keys({"kind", "axis", "axes", "alignment", "bucket_size", "pad_to", "use_orig_params", "round_robin",
                    "groups", "buffer"});
  FlatRule flat;
  flat.key = value.json().dump({.sorted = true});
  if (const auto buffer = value.find("buffer")) (void)buffer->text();  // part of the key, to tell buffers apart
  const std::string kind = value.at("kind").text();
  if (kind == "zero1" || kind == "zero2") {
    flat.kind = FlatKind::kZero1;
  } else if (kind == "zero3") {
    flat.kind = FlatKind::kZero3;
  } else if (kind == "fsdp1") {
    flat.kind = FlatKind::kFsdp1;
  } else if (kind == "megatron") {
    flat.kind = FlatKind::kMegatron;
  } else {
    value.at("kind").fail(
        fmt::format("unknown flat layout '{}'; allowed: zero1, zero2, zero3, fsdp1, megatron", base::printable(kind)));
  }
  flat.axes = read_axes(rules, value);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;  // keeps round_up and lcm far from overflow
  const auto bounded = [&](const char* key, std::uint64_t fallback) {
    const auto item = value.find(key);
    if (!item) return fallback;
    const std::uint64_t number = item->number_from(1);
    if (number > kMost) item->fail("must be at most 2^40");
    return number;
  };
  flat.alignment = bounded("alignment", 0);
  flat.bucket_size = bounded("bucket_size", 0);
  flat.pad_to = bounded("pad_to", 128);
  if (const auto item = value.find("use_orig_params")) flat.use_orig_params = item->flag();
  if (const auto item = value.find("round_robin")) flat.round_robin = item->flag();
  if (const auto groups = value.find("groups")) {
    for (const JsonReader& group : groups->items()) {
      flat.groups.push_back(group.texts());
      for (const std::string& pattern : flat.groups.back())
        NamePattern(pattern.starts_with('!') ? pattern.substr(1) : pattern);
    }
  }
  return flat;
}

// {"0": [{"offset": [0, 0], "shape": [2, 4]}], "1": []}
RankBoxes read_boxes(const LayoutRules& rules, const JsonReader& value) {
  RankBoxes out;
  for (const auto& [key, list] : value.members()) {
    std::uint64_t rank = 0;
    const bool digits = key.size() < 11 && base::is_all_digits(key);
    if (digits) rank = std::stoull(key);
    if (!digits || rank >= rules.world) list.fail(fmt::format("must be a rank below {}", rules.world));
    std::vector<Box>& boxes = out[rank];
    for (const JsonReader& item : list.items()) {
      item.check_keys({"offset", "shape"});
      boxes.push_back({item.at("offset").numbers(), item.at("shape").numbers()});
      if (boxes.back().offset.size() != boxes.back().shape.size()) item.fail("'offset' and 'shape' differ in length");
    }
  }
  return out;
}

Placement read_placement(const LayoutRules& rules, const JsonReader& value, const char* lists_key) {
  value.check_keys({"axis", lists_key, "count", "chunk", "virtual"});
  Placement out;
  out.axis = axis_index(rules, value, value.at("axis").text());
  const std::uint64_t stages = rules.axes[out.axis].size;
  if (const auto lists = value.find(lists_key)) {
    if (value.has("count") || value.has("chunk") || value.has("virtual")) {
      value.fail(fmt::format("'{}' stands alone: no 'count', 'chunk' or 'virtual'", lists_key));
    }
    out.lists.emplace();
    for (const JsonReader& list : lists->items()) out.lists->push_back(list.numbers());
    if (out.lists->size() != stages) {
      lists->fail(fmt::format("has {} lists, but axis '{}' has {} coordinates", out.lists->size(),
                              base::printable(rules.axes[out.axis].name), stages));
    }
    return out;
  }
  out.count = value.at("count").number_from(1);
  if (const auto kind = value.find("chunk")) out.kind = read_kind(*kind);
  if (out.kind == ChunkKind::kStrided) value.fail("'strided' is not a chunk rule here");
  if (const auto chunks = value.find("virtual")) out.virtual_stages = chunks->number_from(1);
  const auto pieces = base::try_mul(stages, out.virtual_stages);
  if (!pieces || *pieces > (1U << 20)) value.fail("the axis times 'virtual' is more than 2^20 chunks");
  if (out.kind == ChunkKind::kEven && out.count % *pieces != 0) {
    value.fail(fmt::format("{} do not divide by {}; add \"chunk\": \"balanced\"", out.count, *pieces));
  }
  return out;
}

// Axes under "replicate" must not cut. The key has no other effect, and serves as documentation.
void check_replicate(const LayoutRules& rules, const JsonReader& value, const NameRule& rule) {
  for (const std::string& name : value.texts()) {
    const std::uint32_t axis = axis_index(rules, value, name);
    bool cuts = rule.flat && std::ranges::find(rule.flat->axes, axis) != rule.flat->axes.end();
    for (const Cut& cut : rule.cuts) cuts = cuts || std::ranges::find(cut.axes, axis) != cut.axes.end();
    if (cuts) value.fail(fmt::format("axis '{}' both cuts and replicates", name));
  }
}

NameRule read_rule(const LayoutRules& rules, const JsonReader& value) {
  value.check_keys({"match", "section", "cuts", "only", "absent", "replicate", "flat", "boxes"});
  NameRule rule;
  rule.key = value.place();
  for (const std::string& pattern : value.at("match").texts()) rule.match.emplace_back(pattern);
  if (const auto section = value.find("section")) rule.section = NamePattern(section->text());
  if (const auto cuts = value.find("cuts")) {
    for (const JsonReader& cut : cuts->items()) rule.cuts.push_back(read_cut(rules, cut));
  }
  if (const auto only = value.find("only")) read_only(rules, *only, rule.where);
  if (const auto absent = value.find("absent")) {
    absent->check_keys({"ranks"});
    rule.where.absent_ranks = read_ranks(rules, absent->at("ranks"));
  }
  if (const auto flat = value.find("flat")) rule.flat = read_flat(rules, *flat);
  if (const auto boxes = value.find("boxes")) {
    if (value.has("flat") || value.has("cuts")) value.fail("'boxes' stands alone: no 'cuts', no 'flat'");
    rule.boxes = read_boxes(rules, *boxes);
  }
  if (const auto replicate = value.find("replicate")) check_replicate(rules, *replicate, rule);
  return rule;
}

void read_otherwise(LayoutRules& rules, const JsonReader& value) {
  const std::string& text = value.text();
  if (text == "replicate") {
    rules.otherwise = Otherwise::kReplicate;
  } else if (text == "error") {
    rules.otherwise = Otherwise::kError;
  } else if (text.starts_with("fsdp:")) {
    rules.otherwise = Otherwise::kFsdp;
    rules.otherwise_axis = axis_index(rules, value, text.substr(5));
  } else {
    value.fail(fmt::format("unknown rule '{}'; allowed: replicate, error, fsdp:AXIS", base::printable(text)));
  }
}

}  // namespace

LayoutRules parse_layout_json(std::string_view text) {
  base::Json document;
  try {
    document = base::Json::parse(text, kDocument);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, error.what());  // a layout is the value of an option
  }
  const JsonReader top(document, kDocument, ErrorKind::kUsage);
  top.check_keys({"mesh", "views", "base", "stages", "experts", "rules", "otherwise"});
  LayoutRules rules;
  if (const auto base_form = top.find("base")) {
    if (top.has("mesh") || top.has("otherwise")) top.fail("'base' stands for 'mesh' and 'otherwise': give one of them");
    rules = parse_short_form(base_form->text());
  } else {
    rules.world = read_mesh(rules, top.at("mesh"));
  }
  rules.text = text.substr(std::min(text.find('{'), text.size()));  // from_text looks at the first character
  if (const auto views = top.find("views")) {
    for (const JsonReader& view : views->items()) {
      if (read_mesh(rules, view) != rules.world)
        view.fail(fmt::format("does not multiply to the {} ranks", rules.world));
    }
  }
  if (const auto stages = top.find("stages")) rules.stages = read_placement(rules, *stages, "layers");
  if (const auto experts = top.find("experts")) rules.experts = read_placement(rules, *experts, "lists");
  if (const auto list = top.find("rules")) {
    for (const JsonReader& rule : list->items()) rules.rules.push_back(read_rule(rules, rule));
  }
  if (const auto otherwise = top.find("otherwise")) read_otherwise(rules, *otherwise);
  return rules;
}

}  // namespace cairn::shard
