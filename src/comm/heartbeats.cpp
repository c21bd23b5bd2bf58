#include "comm/heartbeats.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/mix.hpp"
#include "base/text.hpp"

namespace cairn::comm {
namespace {

/// Largest number of groups that a message names; each adds about 200 bytes to the message.
constexpr std::size_t kNamedGroups = 3;
/// Largest number of ranks, or ranges of ranks, that a message names.
constexpr std::size_t kNamedRanks = 8;

template <std::size_t kSize>
void put(std::array<char, kSize>& to, std::string_view from) {
  to.fill('\0');
  from.copy(to.data(), kSize - 1);
}

template <std::size_t kSize>
std::string_view text_in(const std::array<char, kSize>& from) {
  return {from.data(), static_cast<std::size_t>(std::find(from.begin(), from.end(), '\0') - from.begin())};
}

std::string ago(std::chrono::steady_clock::duration time) {
  return fmt::format("{:.0f} s ago", std::chrono::duration<double>(time).count());
}

/// "3, 7-9 and 12 more"; names at most `room` ranks or ranges, and subtracts their number from `room`.
std::string name_ranks(const std::vector<int>& ranks, std::size_t& room) {
  std::string text;
  std::size_t at = 0;
  while (at < ranks.size() && room > 0) {
    std::size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end == at + 2) --end;  // "3, 4", not "3-4"
    if (at != 0) text += ", ";
    text += fmt::format("{}", ranks[at]);
    if (end > at + 1) text += fmt::format("-{}", ranks[end - 1]);
    at = end;
    --room;
  }
  if (at < ranks.size()) text += fmt::format(" and {} more", ranks.size() - at);
  return text;
}

}  // namespace

/// Missing ranks of one host with the same last known place.
struct Heartbeats::Group {
  std::string_view host;
  bool was_heard = false;
  Heard heard;  ///< their last known place, and the latest time there
  std::vector<int> ranks;
};

Heartbeats::Heartbeats(int rank, int size, Clock::time_point now)
    : rank_(static_cast<std::size_t>(rank)),
      rows_(static_cast<std::size_t>(size)),
      seen_(static_cast<std::size_t>(size), now) {}

void Heartbeats::begin_call() {
  // The beginning counts as a meeting, although ranks do not wait for each other here: this separates the beats of this
  // call from the beats of the previous call.
  meetings_before_call_ = ++meetings_;
  here_ = {};
}

void Heartbeats::enter_phase(std::string_view phase) {
  if (text_in(here_.phase) == phase) return;
  put(here_.phase, phase);
  put(here_.step, "");
  enter();
}

void Heartbeats::enter_step(std::string_view step) {
  if (text_in(here_.step) == step) return;
  put(here_.step, step);
  enter();
}

void Heartbeats::enter() {
  const std::uint64_t hash =
      base::mix64(base::hash_text(text_in(here_.phase)) + base::mix64(base::hash_text(text_in(here_.step))));
  here_.code = static_cast<std::uint16_t>(std::max<std::uint64_t>(1, hash & 0xffffU));
  const auto is_here = [&](const Place& place) { return place.code == here_.code; };
  if (std::any_of(places_.begin(), places_.end(), is_here)) return;
  places_.at(next_place_) = here_;
  next_place_ = (next_place_ + 1) % places_.size();
}

void Heartbeats::meet(Clock::time_point now) {
  ++meetings_;
  met_ = {here_.code, now};
}

void Heartbeats::beat(Clock::time_point now) {
  Row& mine = rows_[rank_];
  ++mine.beats;
  mine.meetings = meetings_;
  if (moved_) ++mine.moves;
  mine.place = here_.code;
  moved_ = false;
  seen_[rank_] = now;
}

bool Heartbeats::merge(std::span<const std::byte> table, Clock::time_point now) {
  bool has_moved = false;
  for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
    Row row;
    std::memcpy(&row, table.data() + rank * sizeof row, sizeof row);
    if (row.beats <= rows_[rank].beats) continue;
    has_moved = has_moved || row.moves != rows_[rank].moves;
    rows_[rank] = row;
    seen_[rank] = now;
  }
  return has_moved;
}

/// Whether the rank's last known place is in this call; `heard` receives that place and its time.
bool Heartbeats::was_heard(std::size_t rank, Heard& heard) const {
  const Row& row = rows_[rank];
  const bool is_beat_newer = row.beats > 0 && row.meetings >= meetings_;
  heard = is_beat_newer ? Heard{row.place, seen_[rank]} : met_;
  return is_beat_newer || meetings_ > meetings_before_call_;
}

/// The name of a place; empty if this rank has not been there recently.
std::string Heartbeats::place_text(std::uint16_t code) const {
  const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.code == code; });
  if (code == 0 || place == places_.end()) return "";
  std::string text;
  const auto add = [&](const char* what, std::string_view name) {
    if (!name.empty()) text += fmt::format("{}{} '{}'", text.empty() ? " in " : ", ", what, base::printable(name));
  };
  add("phase", text_in(place->phase));
  add("step", text_in(place->step));
  return text;
}

std::vector<Heartbeats::Group> Heartbeats::groups_of(const std::vector<int>& ranks, const Hosts* hosts) const {
  std::vector<Group> groups;
  for (const int rank : ranks) {
    Group alone;
    if (hosts != nullptr) alone.host = hosts->of(rank);
    alone.was_heard = was_heard(static_cast<std::size_t>(rank), alone.heard);
    const auto is_alike = [&](const Group& group) {
      return group.host == alone.host && group.was_heard == alone.was_heard && group.heard.place == alone.heard.place;
    };
    auto group = std::find_if(groups.begin(), groups.end(), is_alike);
    if (group == groups.end()) group = groups.insert(group, alone);
    group->heard.at = std::max(group->heard.at, alone.heard.at);
    group->ranks.push_back(rank);
  }
  return groups;
}

std::string Heartbeats::missing(Clock::time_point since, Clock::time_point now, const Hosts* hosts) const {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
    if (rank != rank_ && seen_[rank] < since) missing.push_back(static_cast<int>(rank));
  }
  if (missing.empty()) return "every rank waits, and none for the same";

  const std::vector<Group> groups = groups_of(missing, hosts);
  const auto host_of = [](const Group& group) {
    return group.host.empty() ? std::string() : fmt::format(" ({})", group.host);
  };
  const auto heard_of = [&](const Group& group) {
    if (!group.was_heard) return std::string("not heard of in this call");
    return fmt::format("last heard of{} {}", place_text(group.heard.place), ago(now - group.heard.at));
  };
  std::size_t room = kNamedRanks;
  const bool is_one = missing.size() == 1;
  if (groups.size() == 1) {
    return fmt::format("rank{} {} of {}{} {} missing, {}", is_one ? "" : "s", name_ranks(missing, room), rows_.size(),
                       host_of(groups[0]), is_one ? "is" : "are", heard_of(groups[0]));
  }
  std::string text = fmt::format("{} of {} ranks are missing: ", missing.size(), rows_.size());
  std::size_t rest = missing.size();
  for (std::size_t i = 0; i < std::min(groups.size(), kNamedGroups) && room > 0; ++i) {
    text += fmt::format("{}{}{} {}", i == 0 ? "" : "; ", name_ranks(groups[i].ranks, room), host_of(groups[i]),
                        heard_of(groups[i]));
    rest -= groups[i].ranks.size();
  }
  return rest == 0 ? text : text + fmt::format("; and {} more", rest);
}

}  // namespace cairn::comm
