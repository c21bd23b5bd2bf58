// The Layout value, and the short form of its text.
#include "shard/layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/layout_rules.hpp"

namespace cairn::shard {

// The Layout value: parsed rules behind a shared pointer, so that copies are cheap.

Layout Layout::parse(std::string_view short_form) {
  Layout layout;
  layout.rules_ = std::make_shared<const LayoutRules>(parse_short_form(short_form));
  return layout;
}

Layout Layout::from_json(std::string_view text) {
  Layout layout;
  layout.rules_ = std::make_shared<const LayoutRules>(parse_layout_json(text));
  return layout;
}

int Layout::world_size() const { return static_cast<int>(rules_->world); }

const std::string& Layout::text() const { return rules_->text; }

std::uint64_t ways_of(const LayoutRules& rules, const AxisGroup& group) {
  std::uint64_t ways = 1;
  for (const std::uint32_t axis : group) ways *= rules.axes[axis].size;
  return ways;
}

std::uint64_t position_of(const LayoutRules& rules, const AxisGroup& group, std::uint64_t rank) {
  std::uint64_t position = 0;
  for (const std::uint32_t axis : group) {
    const Axis& a = rules.axes[axis];
    position = position * a.size + rank / a.stride % a.size;
  }
  return position;
}

std::string describe(const LayoutRules& rules, const AxisGroup& group) {
  std::string names;
  for (const std::uint32_t axis : group) names += (names.empty() ? "" : "*") + base::printable(rules.axes[axis].name);
  return fmt::format("{}={}", names, ways_of(rules, group));
}

// The short form of a layout: words such as "tp=4,pp=2,dp=2,zero=1", their checks, and the order of ranks.
//
// Rank order is Megatron's, "tp-cp-ep-dp-pp" with the fastest axis first: a dense view tp-cp-dp-pp and, for experts, a
// view etp-ep-edp-pp of the same ranks (edp = tp*cp*dp / (etp*ep)). fsdp and rep come after cp, which is the order of a
// torch mesh (rep, fsdp, tp). The world size is the product of all degrees except ep, etp and vpp.

namespace {

constexpr std::array<std::string_view, 9> kDegrees = {"tp", "pp", "dp", "ep", "cp", "etp", "fsdp", "rep", "vpp"};
constexpr std::string_view kDefaultOrder = "tp-cp-ep-fsdp-rep-dp-pp";
constexpr std::uint64_t kMostStages = 1U << 20;
constexpr std::string_view kAllowed =
    "tp, pp, dp, ep, cp, etp, fsdp, rep, vpp (each =N with N >= 1), zero=0..3, order=tp-cp-ep-dp-pp, uneven";

[[noreturn]] void fail(std::string_view layout, const std::string& what) {
  throw Error(ErrorKind::kUsage, fmt::format("layout '{}': {}", base::printable(layout), what));
}

struct Words {
  std::map<std::string, std::uint64_t, std::less<>> degrees;
  std::optional<std::uint64_t> zero;
  std::string order;
  bool uneven = false;

  [[nodiscard]] std::uint64_t degree(std::string_view name) const {
    const auto found = degrees.find(name);
    return found == degrees.end() ? 1 : found->second;
  }
};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::uint64_t number(std::string_view layout, std::string_view word, std::string_view value) {
  if (const auto out = base::number_in<std::uint64_t>(value)) return *out;
  fail(layout, fmt::format("'{}' needs a whole number after '='", base::printable(word)));
}

void read_word(std::string_view layout, std::string_view word, Words& words) {
  const std::size_t equals = word.find('=');
  const std::string_view name = trimmed(word.substr(0, equals));
  const bool has_value = equals != std::string_view::npos;
  const std::string_view value = has_value ? trimmed(word.substr(equals + 1)) : std::string_view{};
  const auto twice = [&](bool given) {
    if (given) fail(layout, fmt::format("'{}' is given twice", name));
  };
  if (name == "uneven" && !has_value) {
    twice(words.uneven);
    words.uneven = true;
  } else if (name == "order" && has_value) {
    twice(!words.order.empty());
    if (value.empty()) fail(layout, "'order' needs axes, as in order=tp-cp-ep-dp-pp");
    words.order = value;
  } else if (name == "zero" && has_value) {
    twice(words.zero.has_value());
    words.zero = number(layout, word, value);
    if (*words.zero > 3) fail(layout, fmt::format("zero={} is not a stage; allowed: 0, 1, 2, 3", *words.zero));
  } else if (std::ranges::find(kDegrees, name) != kDegrees.end() && has_value) {
    twice(words.degrees.contains(name));
    const std::uint64_t degree = number(layout, word, value);
    if (degree == 0) fail(layout, fmt::format("'{}' must be at least 1", base::printable(word)));
    words.degrees.emplace(name, degree);
  } else {
    fail(layout, fmt::format("unknown word '{}'; allowed: {}", base::printable(word), kAllowed));
  }
}

Words read_words(std::string_view layout) {
  Words words;
  std::string_view rest = layout;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = trimmed(rest.substr(0, comma));
    if (word.empty()) fail(layout, fmt::format("a word is missing; allowed: {}", kAllowed));
    read_word(layout, word, words);
    if (comma == std::string_view::npos) return words;
    rest = rest.substr(comma + 1);
  }
}

// The axes of an order, fastest first; every axis with a degree above 1 must be in it.
std::vector<std::string> read_order(std::string_view layout, const Words& words) {
  std::vector<std::string> order;
  std::string_view rest = words.order.empty() ? kDefaultOrder : std::string_view(words.order);
  constexpr std::array<std::string_view, 7> kAxes = {"tp", "cp", "ep", "fsdp", "rep", "dp", "pp"};
  for (;;) {
    const std::size_t dash = rest.find('-');
    const std::string name(rest.substr(0, dash));
    if (std::ranges::find(kAxes, name) == kAxes.end()) {
      fail(layout, fmt::format("order names the unknown axis '{}'; allowed: tp, cp, ep, fsdp, rep, dp, pp",
                               base::printable(name)));
    }
    if (std::ranges::find(order, name) != order.end()) fail(layout, fmt::format("order names '{}' twice", name));
    order.push_back(name);
    if (dash == std::string_view::npos) break;
    rest = rest.substr(dash + 1);
  }
  for (const std::string_view axis : kAxes) {
    if (words.degree(axis) > 1 && std::ranges::find(order, axis) == order.end()) {
      fail(layout, fmt::format("order does not name '{}', whose degree is {}", axis, words.degree(axis)));
    }
  }
  return order;
}

std::uint32_t add_axis(LayoutRules& rules, const std::string& name, std::uint64_t size, std::uint64_t stride) {
  rules.axes.push_back({name, size, stride});
  return static_cast<std::uint32_t>(rules.axes.size() - 1);
}

std::uint64_t world_of(std::string_view layout, const Words& words) {
  std::uint64_t world = 1;
  for (const std::string_view axis : {"tp", "cp", "fsdp", "rep", "dp", "pp"}) {
    const auto next = base::try_mul(world, words.degree(axis));
    if (!next || *next > std::numeric_limits<std::int32_t>::max())
      fail(layout, "the degrees multiply to more than 2^31 ranks");
    world = *next;
  }
  return world;
}

// Megatron's second view of the ranks of a pipeline stage. `order`: fastest first.
void add_expert_axes(const Words& words, const std::vector<std::string>& order, LayoutRules& rules, ShortForm& form) {
  const std::string_view layout = rules.text;
  const std::uint64_t ep = words.degree("ep");
  const std::uint64_t etp = words.degrees.contains("etp") ? words.degree("etp") : words.degree("tp");
  if (ep == 1 && etp == words.degree("tp")) {
    form.etp = form.tp;
    form.ep = add_axis(rules, "ep", 1, 1);
    form.expert_flat = form.dense_flat;
    return;
  }
  if (form.fsdp || words.degree("rep") > 1) {
    fail(layout, "ep and etp cannot be combined with fsdp or rep; write a JSON layout (src/shard/README.md)");
  }
  const std::uint64_t stage_ranks = words.degree("tp") * words.degree("cp") * words.degree("dp");
  const auto inner = base::try_mul(ep, etp);
  if (!inner || stage_ranks % *inner != 0) {
    fail(layout, fmt::format("ep={} times etp={} does not divide the {} ranks of a pipeline stage (tp*cp*dp)", ep, etp,
                             stage_ranks));
  }
  if (words.degree("pp") > 1 && order.back() != "pp") fail(layout, "with ep or etp, order must end with pp");
  const std::map<std::string, std::pair<std::string, std::uint64_t>> renamed = {
      {"tp", {"etp", etp}}, {"ep", {"ep", ep}}, {"dp", {"edp", stage_ranks / *inner}}};
  std::uint64_t stride = 1;
  const auto add = [&](const std::string& axis) {
    const auto& [name, size] = renamed.at(axis);
    const std::uint32_t index = add_axis(rules, name, size, stride);
    if (axis == "tp") form.etp = index;
    if (axis == "ep") form.ep = index;
    if (axis == "dp") form.expert_flat.axes = {index};
    stride *= size;
  };
  for (const std::string& axis : order) {
    if (renamed.contains(axis)) add(axis);
  }
  for (const auto& [axis, unused] : renamed) {
    if (std::ranges::find(order, axis) == order.end()) add(axis);
  }
}

void check_combination(std::string_view layout, const Words& words) {
  const bool fsdp = words.degrees.contains("fsdp");
  if (words.degree("rep") > 1 && !fsdp) fail(layout, "rep replicates fsdp groups: it needs fsdp=N");
  if (fsdp && words.zero.value_or(0) > 0) fail(layout, "fsdp and zero exclude each other: zero cuts over dp");
  if (words.degree("vpp") > 1 && words.degree("pp") == 1) fail(layout, "vpp cuts pipeline stages: it needs pp=N");
  const auto chunks = base::try_mul(words.degree("pp"), words.degree("vpp"));
  if (!chunks || *chunks > kMostStages) fail(layout, "pp times vpp is more than 2^20 pipeline chunks");
}

}  // namespace

LayoutRules parse_short_form(std::string_view text) {
  const std::string_view layout = trimmed(text);
  const Words words = read_words(layout);
  check_combination(layout, words);
  LayoutRules rules;
  rules.text = layout;
  rules.world = world_of(layout, words);
  ShortForm form;
  std::vector<std::string> order = read_order(layout, words);
  for (const std::string_view axis : {"tp", "cp", "fsdp", "rep", "dp", "pp"}) {
    if (std::ranges::find(order, axis) == order.end()) order.emplace(order.begin(), axis);  // has degree 1
  }
  AxisGroup& data = form.dense_flat.axes;
  std::uint64_t stride = 1;
  for (const std::string& axis : order) {
    if (axis == "ep") continue;
    const std::uint64_t size = words.degree(axis);
    const std::uint32_t index = add_axis(rules, axis, size, stride);
    stride *= size;
    form.world.insert(form.world.begin(), index);
    if (axis == "tp") form.tp = index;
    if (axis == "pp") form.pp = index;
    if (axis == "dp" || axis == "cp") data.insert(data.begin(), index);
    if (axis == "fsdp" && words.degrees.contains("fsdp")) form.fsdp = index;
  }
  form.zero = static_cast<int>(words.zero.value_or(0));
  form.dense_flat.kind = form.expert_flat.kind = form.zero == 3 ? FlatKind::kZero3 : FlatKind::kZero1;
  form.virtual_stages = words.degree("vpp");
  form.uneven = words.uneven;
  add_expert_axes(words, order, rules, form);
  rules.short_form = form;
  return rules;
}

}  // namespace cairn::shard
