#include "root/root.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/errno_class.hpp"
#include "os/file.hpp"
#include "os/neighbour.hpp"
#include "root/lease_folder.hpp"
#include "root/root_state.hpp"

namespace cairn::root {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";

constexpr const char* kReplacedSuffix = ".replaced";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::size_t kNonceDigits = 16;
constexpr int kLooks = 3;

/// Removes ".<nonce>" from the end and returns the nonce; without a nonce returns "", and `name` is unchanged.
std::string take_nonce(std::string_view& name) {
  if (name.size() <= kNonceDigits || name[name.size() - kNonceDigits - 1] != '.') return {};
  const std::string_view digits = name.substr(name.size() - kNonceDigits);
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return {};
  name.remove_suffix(kNonceDigits + 1);
  return std::string(digits);
}

bool take_suffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

/// The step of "checkpoint-<digits>"; other names are not checkpoints of a root.
std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  const auto step = base::number_in<std::uint64_t>(digits);
  return step && fmt::format("{}", *step) == digits ? step : std::nullopt;
}

/// Every step once, and the partial directories; nothing is checked yet.
std::vector<RootEntry> entries_of(const std::filesystem::path& root) {
  std::vector<RootEntry> entries;
  std::set<std::filesystem::path> replaced;
  for (const auto& found : os::list_directory(root)) {
    const auto name = parse_root_name(found.name);
    if (!name || name->kind == RootName::Kind::kTemporary) continue;
    // The target of a dangling link may be on a file system that is not mounted.
    const bool may_be_step =
        found.is_link && name->kind == RootName::Kind::kCheckpoint && !os::exists(root / found.name);
    if (!found.is_directory && found.error == 0 && !may_be_step) continue;
    if (name->kind == RootName::Kind::kReplaced) {
      replaced.insert(checkpoint_directory(root, name->step));
    }
    RootEntry entry;
    entry.step = name->step;
    entry.partial = name->kind == RootName::Kind::kPartial;
    entry.directory = entry.partial ? root / found.name : checkpoint_directory(root, name->step);
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const RootEntry& a, const RootEntry& b) {
    return std::tie(a.partial, a.step, a.directory) < std::tie(b.partial, b.step, b.directory);
  });
  const auto is_same = [](const RootEntry& a, const RootEntry& b) { return a.directory == b.directory; };
  entries.erase(std::unique(entries.begin(), entries.end(), is_same), entries.end());
  for (RootEntry& entry : entries) entry.is_replaced = replaced.contains(entry.directory);
  return entries;
}

/// The steps of a root or, if they are many, their number and the nearest to `wanted`; and whether `wanted` is
/// unfinished.
std::string words_of_steps(const std::filesystem::path& root, std::uint64_t wanted) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::uint64_t> steps;
  std::string unfinished;
  for (const RootEntry& entry : entries_of(root)) {  // only names: looking at each checkpoint may take long
    if (!entry.partial) steps.push_back(entry.step);
    if (entry.partial && entry.step == wanted) {
      unfinished = fmt::format("; step {} is being saved, or its saver ended before it was whole", wanted);
    }
  }
  std::string text = fmt::format("'{}' has ", os::shown(root));
  if (steps.empty()) return text + "no checkpoint" + unfinished;
  if (steps.size() == 1) return text + fmt::format("only step {}", steps.front()) + unfinished;
  if (steps.size() <= kNamed) {
    const std::span<const std::uint64_t> first = std::span(steps).first(steps.size() - 1);
    return text + fmt::format("steps {} and {}", base::joined(first), steps.back()) + unfinished;
  }
  const auto above = std::ranges::lower_bound(steps, wanted);
  text += fmt::format("{} steps, from {} to {}", base::group_digits(steps.size()), steps.front(), steps.back());
  if (above != steps.begin() && above != steps.end()) {
    text += fmt::format("; the nearest are {} and {}", *std::prev(above), *above);
  }
  return text + unfinished;
}

void stand(RootEntry& entry) {
  static_cast<Standing&>(entry) = look_at(entry.directory);
  entry.problem = entry.error ? entry.error->what() : "";
}

/// Looks at the checkpoint under its name, or at one that was moved aside, if only that is complete or that is newer.
/// Looks up to three times, because during a replacement a complete checkpoint always has one of the two names.
void check_step(RootEntry& entry) {
  const auto directory = entry.directory;
  for (int look = 0; look < kLooks; ++look) {
    entry.directory = directory;
    stand(entry);
    if (entry.is_complete() && !entry.is_replaced) return;
    if (may_be_whole(entry)) continue;
    if (const auto replaced = replaced_checkpoint(directory)) {
      RootEntry old = entry;
      old.directory = *replaced;
      stand(old);
      if (old.is_complete() && (!entry.is_complete() || entry.generation < old.generation)) entry = std::move(old);
    }
    if (entry.is_complete()) return;
  }
}

/// Orders checkpoints by the time of their save.
std::pair<Generation, std::uint64_t> place(const RootEntry& entry) { return {entry.generation, entry.step}; }

bool counts(const RootEntry& entry, Counted counted) {
  return counted == Counted::kAll || !entry.has_manifest || entry.part.has_value() == (counted == Counted::kParts);
}

/// The name of the root's run; empty if the name cannot be read, which a listing tolerates.
std::string run_of(const std::filesystem::path& root) {
  try {
    return read_root_state(root).run_id;
  } catch (const Error& error) {
    if (os::is_shortage(error)) throw;
    return {};
  }
}

/// Whether another run, from which this one does not descend, saved the checkpoint: then a person put it there.
bool is_of_other_run(const Descent& descent, const RootEntry& entry) {
  if (entry.run_id.empty() || descent.run_id.empty() || entry.run_id == descent.run_id) return false;
  return !std::ranges::any_of(descent.lineage,
                              [&](const format::Life& life) { return life.epoch == entry.generation.epoch; });
}

/// `entries`: all of the root; `left`: its void ones.
void say_not_followed(const std::filesystem::path& root, std::uint64_t named, const std::vector<RootEntry>& entries,
                      const std::vector<RootEntry>& left) {
  const auto has_step = [&](const RootEntry& entry) { return entry.step == named; };
  const bool is_part =
      std::ranges::any_of(entries, [&](const RootEntry& entry) { return has_step(entry) && entry.part; });
  base::warn_once(fmt::format(
      "'{}' names step {}, and is not followed: {}", os::shown(root / kLatestFile), named,
      is_part ? "that checkpoint holds only a part of a state"
      : std::ranges::any_of(left, has_step)
          ? "the run went back from that step, and abandoned it; to take it up again, load it by its number and save"
          : "there is no such checkpoint"));
}

void refuse_lost_files(const std::vector<RootEntry>& entries) {
  const auto lost = std::find_if(entries.rbegin(), entries.rend(), [](const RootEntry& entry) {
    return !entry.partial && !entry.is_void && !entry.part && entry.condition == Condition::kIncomplete;
  });
  if (lost == entries.rend()) return;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("'{}' is not complete, and neither is another step: {}; bring its files back, or, to begin "
                          "anew, take another root or move it away",
                          os::shown(lost->directory), lost->problem),
              {0, lost->directory.native()});
}

}  // namespace

std::filesystem::path checkpoint_directory(const std::filesystem::path& root, std::uint64_t step) {
  return root / fmt::format("{}{}", kPrefix, step);
}

std::filesystem::path partial_directory(const std::filesystem::path& directory, const std::string& nonce) {
  return fmt::format("{}.{}{}", directory.string(), nonce, kPartialSuffix);
}

std::filesystem::path replaced_directory(const std::filesystem::path& directory, const std::string& nonce) {
  return fmt::format("{}.{}{}", directory.string(), nonce, kReplacedSuffix);
}

std::filesystem::path latest_temporary(const std::filesystem::path& root, const std::string& nonce) {
  return root / fmt::format("{}.{}{}", kLatestFile, nonce, kTemporarySuffix);
}

std::optional<RootName> parse_root_name(std::string_view text) {
  RootName name;
  name.text = text;
  if (take_suffix(text, kTemporarySuffix)) {
    name.kind = RootName::Kind::kTemporary;
    name.nonce = take_nonce(text);
    if (name.nonce.empty() || text != kLatestFile) return std::nullopt;
    return name;
  }
  if (take_suffix(text, kPartialSuffix)) {
    name.kind = RootName::Kind::kPartial;
  } else if (take_suffix(text, kReplacedSuffix)) {
    name.kind = RootName::Kind::kReplaced;
  }
  if (name.kind != RootName::Kind::kCheckpoint) {
    name.nonce = take_nonce(text);
    if (name.nonce.empty()) return std::nullopt;  // not Cairn's
  }
  const auto step = step_of(text);
  if (!step) return std::nullopt;
  name.step = *step;
  return name;
}

std::vector<Unfinished> list_unfinished(const std::filesystem::path& directory) {
  std::vector<Unfinished> all;
  for (const auto& found : os::list_directory(directory)) {
    std::string_view name = found.name;
    if (!found.is_directory || found.is_link || parse_root_name(name)) continue;
    if (!take_suffix(name, kPartialSuffix) || take_nonce(name).empty() || name.empty()) continue;
    Unfinished unfinished{directory / found.name, directory / name, 0, 0};
    try {
      for (const auto& file : os::list_directory(unfinished.directory)) {
        unfinished.bytes += file.size_bytes;
        unfinished.files += file.is_regular ? 1 : 0;
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kNotFound) continue;  // finished, or removed
      throw;
    }
    all.push_back(std::move(unfinished));
  }
  return all;
}

std::optional<std::filesystem::path> replaced_checkpoint(const std::filesystem::path& directory) {
  const std::filesystem::path parent = directory.has_parent_path() ? directory.parent_path() : ".";
  if (!os::exists(parent)) return std::nullopt;
  std::optional<Generation> newest;
  std::optional<std::filesystem::path> place;
  for (const auto& found : os::list_directory(parent)) {
    std::string_view name = found.name;
    if (!found.is_directory || !take_suffix(name, kReplacedSuffix) || take_nonce(name).empty()) continue;
    if (name != directory.filename().native()) continue;
    const auto old = parent / found.name / directory.filename();
    const auto generation = generation_of(old);
    if (!generation || (newest && !(*newest < *generation))) continue;
    newest = generation;
    place = old;
  }
  return place;
}

std::uint64_t highest_saved_epoch(const std::filesystem::path& root) {
  std::uint64_t highest = 0;
  if (!os::exists(root)) return highest;
  for (const RootEntry& entry : list_root(root)) highest = std::max(highest, entry.generation.epoch);
  return highest;
}

std::vector<RootEntry> list_root(const std::filesystem::path& root) {
  auto entries = entries_of(root);
  for (RootEntry& entry : entries) {
    if (entry.partial) {
      entry.problem = "not committed";
    } else {
      check_step(entry);
    }
  }
  // A saver of parts goes back for itself: a whole state is void only to a whole state, and a part to a part.
  const std::string run = run_of(root);
  const auto descent_of = [](const RootEntry* head) {
    return head == nullptr ? std::nullopt : std::optional(Descent{head->generation.epoch, head->lineage, head->run_id});
  };
  const auto of_wholes = descent_of(head_of(entries, run));
  const auto of_parts = descent_of(head_of(entries, run, Counted::kParts));
  for (RootEntry& entry : entries) {
    if (!entry.has_manifest) continue;
    const Descent& descent = entry.part ? *of_parts : *of_wholes;
    auto reason = why_void(descent, entry.step, entry.generation);
    if (!reason && is_of_other_run(descent, entry)) {
      entry.is_of_other_run = true;
      reason = fmt::format("void: saved by run '{}', and this is the root of run '{}'", base::printable(entry.run_id),
                           base::printable(descent.run_id));
    }
    if (!reason) continue;
    entry.is_void = true;
    if (entry.is_complete()) entry.problem = *reason;
  }
  return entries;
}

std::string words_of_other_step(const std::filesystem::path& directory, const format::Manifest& manifest) {
  const auto step = step_of(directory.filename().string());
  if (!step || !manifest.has_step || manifest.step == *step) return {};
  return fmt::format("'{}' is step {} by its {}, and was copied or renamed since; it counts as what it is called",
                     os::shown(directory), manifest.step, format::kManifestFile);
}

std::string words_of_beginning(const std::filesystem::path& root, const std::vector<RootEntry>& entries,
                               const Descent& descent, std::uint64_t step) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::uint64_t> abandoned;
  std::optional<std::uint64_t> highest;
  for (const RootEntry& entry : entries) {
    if (!entry.is_complete() || entry.is_void || entry.part || entry.generation.epoch == 0) continue;
    if (why_void(descent, entry.step, entry.generation)) abandoned.push_back(entry.step);
    highest = entry.step;
  }
  if (!abandoned.empty()) {
    std::string which = base::joined(std::span(abandoned).first(std::min(abandoned.size(), kNamed)));
    if (abandoned.size() > kNamed) which += fmt::format(" and {} more", abandoned.size() - kNamed);
    return fmt::format("{} {} of '{}' {} abandoned from now on: this run went back to step {}, and goes on from there",
                       abandoned.size() == 1 ? "step" : "steps", which, os::shown(root),
                       abandoned.size() == 1 ? "is" : "are", descent.lineage.back().step);
  }
  if (!descent.lineage.empty() || !highest || *highest < step) return {};
  return fmt::format(
      "'{}' has step {}, and this program has loaded nothing from it: step {} is now the one to resume from; to go on "
      "from what was there, begin with load_latest(), and else save into another root",
      os::shown(root), *highest, step);
}

Error does_not_exist(const std::filesystem::path& checkpoint) {
  const std::filesystem::path name = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  const std::filesystem::path root = name.has_parent_path() ? name.parent_path() : ".";
  const auto step = step_of(name.filename().string());
  std::error_code ignored;
  if (!step || !std::filesystem::is_directory(root, ignored)) {
    return {ErrorKind::kNotFound, os::does_not_exist(checkpoint), {0, checkpoint.native()}};
  }
  std::string text = fmt::format("'{}' does not exist", os::shown(checkpoint));
  try {
    text += ": " + words_of_steps(root, *step);
  } catch (const Error&) {  // the root cannot be listed; the step is missing all the same
  }
  return {ErrorKind::kNotFound, text, {0, checkpoint.native(), -1, Missing::kStep}};
}

const RootEntry* head_of(const std::vector<RootEntry>& entries, const std::string& run_id, Counted counted) {
  const auto rank = [&](const RootEntry& entry) { return std::pair(entry.run_id == run_id, place(entry)); };
  const RootEntry* head = nullptr;
  for (const RootEntry& entry : entries) {
    if (!counts(entry, counted)) continue;
    if (entry.has_manifest && (head == nullptr || rank(*head) < rank(entry))) head = &entry;
  }
  return head;
}

std::vector<RootEntry> resume_order(const std::filesystem::path& root, const std::vector<RootEntry>& entries,
                                    Counted counted) {
  std::vector<RootEntry> order;
  std::vector<RootEntry> left;         // void
  std::vector<RootEntry> without_one;  // without a manifest, by step
  for (const RootEntry& entry : entries) {
    if (entry.partial || (entry.is_void && !entry.is_complete())) continue;
    if (!counts(entry, counted)) continue;
    (entry.is_void ? left : entry.has_manifest ? order : without_one).push_back(entry);
  }
  const auto is_later = [](const RootEntry& a, const RootEntry& b) { return place(b) < place(a); };
  std::ranges::sort(order, is_later);
  std::ranges::sort(left, is_later);
  std::optional<std::uint64_t> last_saved;
  if (!order.empty()) last_saved = order.front().step;
  for (RootEntry& entry : without_one) {
    const auto lower = std::ranges::find_if(order, [&](const RootEntry& other) { return other.step < entry.step; });
    order.insert(lower, std::move(entry));
  }
  const auto position_of = [&](const std::optional<std::uint64_t>& step) {
    return std::ranges::find_if(order, [&](const RootEntry& entry) { return entry.step == step; });
  };
  const auto named = read_latest_file(root);
  const auto written = read_root_state(root).latest_written;
  const auto chosen = named == written ? order.end() : position_of(named);
  if (named && named != written && chosen == order.end()) say_not_followed(root, *named, entries, left);
  if (chosen != order.end()) {  // a user went back to this step, and does not want a later one
    std::erase_if(left, [&](const RootEntry& entry) { return !chosen->has_manifest || is_later(entry, *chosen); });
    order.erase(order.begin(), chosen);
  } else {
    // The order begins with the last saved checkpoint, readable or not, or with a conversion that took its place.
    // Checkpoints before it in the list are moved to the end: a run that saved a lower step later had gone back.
    const auto start = position_of(written);
    if (start != order.end() && (written == last_saved || !start->has_manifest || start->generation.epoch == 0)) {
      std::rotate(order.begin(), start, order.end());
    }
  }
  std::ranges::move(left, std::back_inserter(order));
  return order;
}

std::string words_of_parts(const std::vector<RootEntry>& entries) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::uint64_t> steps;
  for (const RootEntry& entry : entries) {
    if (entry.is_complete() && entry.part) steps.push_back(entry.step);
  }
  if (steps.empty()) return {};
  std::ranges::sort(steps);
  std::string named = base::joined(std::span(steps).last(std::min(steps.size(), kNamed)));
  if (steps.size() > kNamed) named += fmt::format(" and {} more", steps.size() - kNamed);
  return fmt::format("; {} {} only a part of a state, to be loaded by the step",
                     steps.size() == 1 ? fmt::format("step {}", named) : fmt::format("steps {}", named),
                     steps.size() == 1 ? "holds" : "hold");
}

std::optional<std::uint64_t> newest_step(const std::filesystem::path& root) {
  if (!os::exists(root)) return std::nullopt;
  const auto entries = list_root(root);
  const auto step = newest_step(root, entries);
  if (!step) refuse_lost_files(entries);
  return step;
}

std::optional<std::uint64_t> newest_step(const std::filesystem::path& root, const std::vector<RootEntry>& entries) {
  for (const RootEntry& entry : resume_order(root, entries)) {
    switch (entry.condition) {
      case Condition::kWhole: return entry.step;
      case Condition::kIncomplete:
      case Condition::kForeign: break;  // proven not to be a step to resume from
      case Condition::kDamaged:
      case Condition::kNewer:
      case Condition::kUnreadable:
        throw entry.error->with_message(
            fmt::format("'{}' may be the newest checkpoint, and cannot be read: {}; name another step, or use "
                        "load_latest(), which goes past what is damaged",
                        os::shown(entry.directory), entry.error->what()));
    }
  }
  const auto later =
      std::ranges::find_if(entries, [](const RootEntry& entry) { return entry.is_complete() && !entry.part; });
  if (later == entries.end()) return std::nullopt;
  throw Error(ErrorKind::kState,
              fmt::format("'{}' was edited to name step {}, and neither that step nor one that was saved before it is "
                          "complete; name another one in it (step {} is complete), or remove the file",
                          os::shown(root / kLatestFile), read_latest_file(root).value_or(0), later->step),
              {0, (root / kLatestFile).native()});
}

}  // namespace cairn::root
