#include "directory/root.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "cairn/error.hpp"
#include "directory/lease_folder.hpp"
#include "format/manifest.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

constexpr const char* kLatestWritten = "latest_written";
constexpr std::uint64_t kMaxStateBytes = 1 << 20;
constexpr std::uint64_t kMaxLatestBytes = 64;

base::Json read_document(const std::filesystem::path& root) noexcept {
  try {
    const auto path = root / kLeaseDirectory / kRootStateFile;
    base::Json document = base::Json::parse(os::read_text(path, kMaxStateBytes), path.string());
    if (document.is_object()) return document;
  } catch (const std::exception&) {
    // Missing or damaged: as if it said nothing.
  }
  return base::Json::object();
}

}  // namespace

RootState read_root_state(const std::filesystem::path& root) noexcept {
  RootState state;
  const base::Json document = read_document(root);
  const base::Json* latest = document.find(kLatestWritten);
  if (latest != nullptr && latest->is_number_unsigned()) state.latest_written = latest->whole_number();
  return state;
}

void note_latest(const std::filesystem::path& root, std::uint64_t step) {
  base::Json document = read_document(root);
  document[kLatestWritten] = step;
  const std::string text = base::python_json(document);
  os::replace_file(root / kLeaseDirectory / kRootStateFile, base::as_bytes(text));
}

std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root) noexcept {
  try {
    std::string text = os::read_text(root / kLatestFile, kMaxLatestBytes);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
    std::uint64_t step = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), step);
    if (!text.empty() && status == std::errc() && end == text.data() + text.size()) return step;
  } catch (const std::exception&) {
    // Missing, or not a file: it names nothing.
  }
  return std::nullopt;
}

namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::uint64_t kMaxManifestBytes = 256ULL << 20;

constexpr const char* kReplacedSuffix = ".replaced";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::size_t kNonceDigits = 16;
constexpr int kLooks = 3;

/// Takes ".<nonce>" off the end; empty, and nothing taken, when there is none.
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
  std::uint64_t step = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (status != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (fmt::format("{}", step) != digits) return std::nullopt;
  return step;
}

void check_complete(RootEntry& entry) {
  const auto manifest_path = entry.directory / kManifestFile;
  try {
    if (!os::exists(manifest_path)) {
      entry.problem = fmt::format("no {}", kManifestFile);
      return;
    }
    const auto manifest =
        format::parse_manifest(os::read_text(manifest_path, kMaxManifestBytes), manifest_path.string());
    entry.has_manifest = true;
    entry.generation = {manifest.epoch, manifest.counter};
    entry.lineage = manifest.lineage;
    for (const auto* files : {&manifest.data_files, &manifest.carried_files}) {
      for (const auto& file : *files) {
        const auto path = entry.directory / file.name;
        if (!os::exists(path)) {
          entry.problem = fmt::format("{} is missing", file.name);
          return;
        }
        const std::uint64_t size = os::file_size(path);
        if (size != file.size_bytes) {
          entry.problem = fmt::format("{} has {} bytes, {} names {}", file.name, size, kManifestFile, file.size_bytes);
          return;
        }
      }
    }
    for (const auto& file : manifest.data_files) entry.bytes += file.size_bytes;
    entry.files = manifest.data_files.size();
    entry.complete = true;
  } catch (const Error& error) {
    if (is_shortage(error)) throw;
    entry.problem = error.what();
  }
}

/// Of the old checkpoint in a "*.replaced".
RootEntry replaced_entry(const std::filesystem::path& container, const std::filesystem::path& name) {
  RootEntry entry;
  entry.directory = container / name;
  check_complete(entry);
  return entry;
}

/// Every step once, and the partial ones; nothing is checked yet.
std::vector<RootEntry> entries_of(const std::filesystem::path& root) {
  std::vector<RootEntry> entries;
  std::set<std::filesystem::path> replaced;
  for (const auto& found : os::list_directory(root)) {
    if (!found.is_directory) continue;
    const auto name = parse_root_name(found.name);
    if (!name || name->kind == RootName::Kind::kTemporary) continue;
    if (name->kind == RootName::Kind::kReplaced) {
      if (name->nonce.empty()) continue;  // Cairn 0.1 never read these
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

/// The checkpoint of the name, or one that waits beside it when that is the newer complete one. What is replaced
/// meanwhile is looked at again: it is complete under one of the two names at every moment.
void check_step(RootEntry& entry) {
  const RootEntry unchecked = entry;
  for (int look = 0; look < kLooks; ++look) {
    entry = unchecked;
    check_complete(entry);
    if (entry.complete && !entry.is_replaced) return;
    if (const auto replaced = replaced_checkpoint(entry.directory)) {
      RootEntry old = replaced_entry(replaced->parent_path(), replaced->filename());
      old.step = entry.step;
      if (old.complete && (!entry.complete || entry.generation < old.generation)) entry = std::move(old);
    }
    if (entry.complete) return;
  }
}

}  // namespace

bool is_shortage(const Error& error) {
  const int cause = error.system_error();
  return cause == ENOMEM || cause == EMFILE || cause == ENFILE;
}

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
    name.nonce = take_nonce(text);
  } else if (take_suffix(text, kReplacedSuffix)) {
    name.kind = RootName::Kind::kReplaced;
    name.nonce = take_nonce(text);
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
      if (error.kind() == ErrorKind::kNotFound) continue;  // it has got its name, or was removed
      throw;
    }
    all.push_back(std::move(unfinished));
  }
  return all;
}

std::optional<Generation> generation_of(const std::filesystem::path& directory) {
  RootEntry entry;
  entry.directory = directory;
  check_complete(entry);
  if (!entry.complete) return std::nullopt;
  return entry.generation;
}

std::optional<std::filesystem::path> replaced_checkpoint(const std::filesystem::path& directory) {
  const std::filesystem::path parent = directory.has_parent_path() ? directory.parent_path() : ".";
  if (!os::exists(parent)) return std::nullopt;
  std::optional<RootEntry> newest;
  for (const auto& found : os::list_directory(parent)) {
    std::string_view name = found.name;
    if (!found.is_directory || !take_suffix(name, kReplacedSuffix) || take_nonce(name).empty()) continue;
    if (name != directory.filename().native()) continue;
    RootEntry entry = replaced_entry(parent / found.name, directory.filename());
    if (entry.complete && (!newest || newest->generation < entry.generation)) newest = std::move(entry);
  }
  if (!newest) return std::nullopt;
  return newest->directory;
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
  const RootEntry* head = head_of(entries);
  if (head == nullptr) return entries;
  const Descent descent{head->generation.epoch, head->lineage};
  for (RootEntry& entry : entries) {
    if (!entry.complete) continue;
    const auto reason = why_void(descent, entry.step, entry.generation.epoch);
    if (!reason) continue;
    entry.is_void = true;
    entry.problem = *reason;
  }
  return entries;
}

std::optional<std::string> why_void(const Descent& descent, std::uint64_t step, std::uint64_t epoch) {
  if (epoch == descent.epoch || descent.lineage.empty()) return std::nullopt;
  const auto life = std::ranges::find(descent.lineage, epoch, &format::Life::epoch);
  if (life == descent.lineage.end()) {
    if (epoch == 0) return std::nullopt;
    return fmt::format("void: saved in epoch {}, from which epoch {} does not descend", epoch, descent.epoch);
  }
  if (step <= life->step) return std::nullopt;
  return fmt::format("void: epoch {} was left at step {} by what is now epoch {}", epoch, life->step, descent.epoch);
}

namespace {

/// By which of two checkpoints that was saved last.
std::pair<Generation, std::uint64_t> place(const RootEntry& entry) { return {entry.generation, entry.step}; }

}  // namespace

const RootEntry* head_of(const std::vector<RootEntry>& entries) {
  const RootEntry* head = nullptr;
  for (const RootEntry& entry : entries) {
    if (entry.complete && (head == nullptr || place(*head) < place(entry))) head = &entry;
  }
  return head;
}

std::optional<std::uint64_t> newest_step(const std::filesystem::path& root) {
  if (!os::exists(root)) return std::nullopt;
  return newest_step(root, list_root(root));
}

std::optional<std::uint64_t> newest_step(const std::filesystem::path& root, const std::vector<RootEntry>& entries) {
  const RootEntry* head = head_of(entries);
  if (head == nullptr) return std::nullopt;
  const auto named = read_latest_file(root);
  if (!named || named == read_root_state(root).latest_written) return head->step;
  const auto is_named = [&](const RootEntry& entry) {
    return !entry.partial && entry.complete && !entry.is_void && entry.step == *named;
  };
  return std::ranges::any_of(entries, is_named) ? *named : head->step;
}

std::vector<RootEntry> resume_order(const std::filesystem::path& root, const std::vector<RootEntry>& entries) {
  std::vector<RootEntry> order;
  std::vector<RootEntry> unreadable;  // by step
  for (const RootEntry& entry : entries) {
    if (!entry.partial) (entry.has_manifest ? order : unreadable).push_back(entry);
  }
  std::ranges::sort(order, [](const RootEntry& a, const RootEntry& b) { return place(b) < place(a); });
  std::optional<std::uint64_t> last_saved;
  if (!order.empty()) {
    last_saved = order.front().step;
    const Descent newest{order.front().generation.epoch, order.front().lineage};
    std::erase_if(order, [&](const RootEntry& entry) {
      return entry.is_void || why_void(newest, entry.step, entry.generation.epoch);
    });
  }
  for (RootEntry& entry : unreadable) {
    const auto lower = std::ranges::find_if(order, [&](const RootEntry& other) { return other.step < entry.step; });
    order.insert(lower, std::move(entry));
  }
  const auto position_of = [&](const std::optional<std::uint64_t>& step) {
    return std::ranges::find_if(order, [&](const RootEntry& entry) { return entry.step == step; });
  };
  const auto named = read_latest_file(root);
  const auto written = read_root_state(root).latest_written;
  const auto chosen = named == written ? order.end() : position_of(named);
  if (chosen != order.end()) {  // people went back to it, and want none of those before
    order.erase(order.begin(), chosen);
    return order;
  }
  // What was saved last, whether it can be read or not: what stands before it was not, and is the last resort.
  const auto start = position_of(written);
  if (start != order.end() && (written == last_saved || !start->has_manifest)) {
    std::rotate(order.begin(), start, order.end());
  }
  return order;
}

}  // namespace cairn::checkpoint
