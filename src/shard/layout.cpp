// The Layout value: parsed rules behind a shared pointer, so that copies are cheap.
#include "shard/layout.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "shard/layout_rules.hpp"

namespace cairn::shard {

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

}  // namespace cairn::shard
