// Agreement on the outcome of rank-local work: one reduction of one number on success. Kind, message, details and
// failing ranks are sent only after a failure.
#include "comm/agree.hpp"

#include <fmt/core.h>

#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "base/mix.hpp"
#include "base/text.hpp"
#include "os/limits.hpp"

namespace cairn::comm {
namespace {

/// The exception that `work` threw, as an Error; nothing if `work` returned.
std::optional<Error> outcome_of(std::string_view step, Work work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kInternal, fmt::format("{}: out of memory (std::bad_alloc){}", step, os::memory_note()));
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal,
                 fmt::format("{}: {}", step, base::printable(error.what(), base::kForeignTextBytes)));
  } catch (...) {
    return Error(ErrorKind::kInternal, fmt::format("{}: exception of unknown type", step));
  }
}

/// "rank 3", "ranks 3, 5" or "ranks 3, 5 and 2 more", each rank with its host if there are several hosts: "rank 3 on
/// node07".
std::string name_ranks(const Communicator& communicator, const std::vector<base::Bytes>& failed) {
  constexpr std::size_t kNamed = 2;
  std::string names;
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank].empty() || ++count > kNamed) continue;
    const std::string name = communicator.rank_name(static_cast<int>(rank)).substr(std::string_view("rank ").size());
    names += (names.empty() ? "" : ", ") + name;
  }
  const std::string more = count > kNamed ? fmt::format(" and {} more", count - kNamed) : "";
  return fmt::format("{} {}{}", count == 1 ? "rank" : "ranks", names, more);
}

/// Collective: the Error of rank `lowest`; in a group of several ranks, its message ends with the failing ranks.
AgreedError common_error(Communicator& communicator, const std::optional<Error>& mine, int lowest) {
  const bool is_mine = communicator.rank() == lowest;
  std::string text = is_mine ? mine->what() : "";
  ErrorDetails details = is_mine ? mine->details() : ErrorDetails{};
  std::uint64_t numbers[] = {is_mine ? static_cast<std::uint64_t>(mine->kind()) : 0,
                             static_cast<std::uint64_t>(details.system_error), text.size(), details.path.size(),
                             static_cast<std::uint64_t>(details.missing)};
  communicator.broadcast(std::as_writable_bytes(std::span(numbers)), lowest);
  details.system_error = static_cast<int>(numbers[1]);
  details.rank = lowest;
  details.missing = static_cast<Missing>(numbers[4]);
  text.resize(numbers[2]);
  details.path.resize(numbers[3]);
  communicator.broadcast(std::as_writable_bytes(std::span(text)), lowest);
  communicator.broadcast(std::as_writable_bytes(std::span(details.path)), lowest);
  const base::Bytes flag(mine ? 1 : 0);
  const auto failed = communicator.all_gather(flag);
  if (communicator.size() > 1) text += " (" + name_ranks(communicator, failed) + ")";
  return {static_cast<ErrorKind>(numbers[0]), text, std::move(details)};
}

}  // namespace

void agree(Communicator& communicator, std::string_view step, Work work) {
  if (const auto liveness = communicator.liveness()) liveness->step(step);
  const std::optional<Error> mine = outcome_of(step, work);
  const std::optional<int> lowest = communicator.lowest_rank_where(mine.has_value());
  if (lowest) throw common_error(communicator, mine, *lowest);
}

void internal::agree_on_values(Communicator& communicator, std::string_view what, std::vector<NamedValue>& mine,
                               Work put) {
  std::vector<std::uint64_t> least;  // the hashes, then their complements
  agree(communicator, "compare what the ranks were given", [&] {
    put();
    for (const NamedValue& value : mine) least.push_back(base::hash_text(value.value));
    for (std::size_t i = 0; i < mine.size(); ++i) least.push_back(~least[i]);
  });
  communicator.all_reduce(least, ReduceOp::kMin);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (least[i] == ~least[mine.size() + i]) continue;
    std::string first = mine[i].value;
    communicator.share(first, 0);
    const std::optional<int> other = communicator.lowest_rank_where(mine[i].value != first);
    std::string second = mine[i].value;
    communicator.share(second, *other);
    throw AgreedError(ErrorKind::kUsage,
                      fmt::format("{} '{}' differs between the ranks: '{}' on {}, '{}' on {}; give all ranks the same",
                                  what, mine[i].name, base::printable(first), communicator.rank_name(0),
                                  base::printable(second), communicator.rank_name(*other)));
  }
}

void agree_on_root(Communicator& communicator, std::string_view step, int root, Work work) {
  agree(communicator, step, [&] {
    if (communicator.rank() == root) work();
  });
}

}  // namespace cairn::comm
