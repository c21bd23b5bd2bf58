#include "interop/paddle/rank_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/digits.hpp"
#include "base/json.hpp"

namespace cairn::interop {
namespace {

constexpr std::array<std::string_view, kAxes> kNames = {"tp", "pp", "shard", "moe"};
constexpr std::array<std::string_view, 2> kSets = {"optimizer", "master_weights"};
constexpr std::uint32_t kMostRanks = 1 << 20;  // limit along an axis; names may be malicious

std::vector<std::string> names_of(std::span<const RankFile> files) {
  std::vector<std::string> names;
  for (const RankFile& file : files) names.push_back(file.name);
  return names;
}

/// Removes a rank such as "tp00" from the front, and returns its axis and number.
std::optional<std::pair<std::size_t, std::uint32_t>> take_rank(std::string_view& text) {
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!text.starts_with(kNames[axis])) continue;
    const std::string_view rest = text.substr(kNames[axis].size());
    const auto digits =
        static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), base::is_digit) - rest.begin());
    if (digits < 2) return std::nullopt;
    std::uint32_t rank = 0;
    for (const char c : rest.substr(0, digits)) {
      rank = rank * 10 + static_cast<std::uint32_t>(c - '0');
      if (rank >= kMostRanks) return std::nullopt;
    }
    text = rest.substr(digits);
    return std::pair(axis, rank);
  }
  return std::nullopt;
}

/// A name includes an axis only if there are several ranks along it; except for experts, which may have one rank.
Rank degrees_of(std::span<const RankFiles> sets) {
  Rank degrees{1, 1, 1, 1};
  for (const RankFiles& set : sets) {
    for (std::size_t axis = 0; axis < kAxes; ++axis) {
      if (set.named[axis] && axis != kExpert) degrees[axis] = std::max(degrees[axis], 2U);
      for (const RankFile& file : set.files) degrees[axis] = std::max(degrees[axis], file.rank[axis] + 1);
    }
  }
  return degrees;
}

/// The most missing files that an error names; malicious names could imply any number.
constexpr std::size_t kMostMissing = 32;

std::vector<std::string> missing_files(const RankFiles& set) {
  std::vector<std::string> missing;
  Rank next{};
  std::uint32_t piece = set.pieces == 0 ? 0 : 1;
  std::size_t at = 0;
  while (missing.size() <= kMostMissing) {
    if (at == set.files.size() || set.files[at].rank != next || set.files[at].piece != piece) {
      missing.push_back(set.name_of(next, piece));
    } else {
      ++at;
    }
    if (piece != set.pieces) {
      ++piece;
      continue;
    }
    piece = set.pieces == 0 ? 0 : 1;
    std::size_t axis = kAxes;
    while (axis > 0 && ++next[axis - 1] == set.degrees[axis - 1]) next[--axis] = 0;
    if (axis == 0) break;
  }
  return missing;
}

/// The number of files of each rank's state, according to the index; 0: one file, or unknown.
std::uint32_t pieces_of_index(Reading& reading) {
  const auto optimizer = reading.sets().find(std::string(kSets[0]));
  if (optimizer == reading.sets().end()) return 0;
  const base::Json* pieces = optimizer->second.index.extra.find("optim_shard_num");
  if (pieces == nullptr || !pieces->is_number_unsigned() || pieces->whole_number() < 2) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(pieces->whole_number(), kMostRanks));
}

/// Refuses a merged set next to the files of ranks: the set belongs to another save.
void refuse_merged(const RankFile& of_rank, Reading& reading) {
  const std::string words = fmt::format(
      "belongs to another save than {}, which holds what one rank had; move one of the two away", shown(of_rank.name));
  for (const std::string_view set : kSets) {
    const auto found = reading.sets().find(std::string(set));
    if (found == reading.sets().end()) continue;
    for (const std::string& file : found->second.files) {
      if (parse_rank_name(of_rank.name) || parse_file_piece(file).file != std::string(set) + std::string(kDataSuffix)) {
        throw reading.error(ErrorKind::kFormat, file, words);
      }
    }
    if (found->second.index_file.empty() || !found->second.has_map) continue;
    throw reading.error(ErrorKind::kFormat, found->second.index_file, words);
  }
}

}  // namespace

std::optional<RankName> parse_rank_name(std::string_view file) {
  const FilePiece piece = parse_file_piece(file);
  if (!piece.file.ends_with(kDataSuffix)) return std::nullopt;
  std::string_view rest = piece.file.substr(0, piece.file.size() - kDataSuffix.size());
  for (const std::string_view set : kSets) {
    if (!rest.starts_with(set) || rest.size() <= set.size() || rest[set.size()] != '.') continue;
    RankName out{std::string(set), {}, piece.number};
    if (parse_ranks(rest.substr(set.size() + 1), out)) return out;
  }
  return std::nullopt;
}

bool parse_ranks(std::string_view text, RankName& out) {
  while (true) {
    const auto rank = take_rank(text);
    if (!rank || out.ranks[rank->first]) return false;
    out.ranks[rank->first] = rank->second;
    if (text.empty()) return true;
    if (text.front() != '_') return false;
    text.remove_prefix(1);
  }
}

std::string RankFiles::name_of(const Rank& rank, std::uint32_t piece) const {
  std::string out = set;
  char separator = '.';
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!named[axis]) continue;
    out += fmt::format("{}{}{:02}", separator, kNames[axis], rank[axis]);
    separator = '_';
  }
  if (suffix == kDataSuffix) return out + std::string(suffix) + (piece == 0 ? "" : fmt::format("_shard_{:04}", piece));
  if (piece == 0) return out + std::string(suffix);
  // The numbers are written as in the other files' names.
  const std::string like = name_of_number(piece, names_of(files));
  return out + like.substr(parse_data_name(like).number_at - 1);
}

std::string RankFiles::parallel() const {
  std::string out;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (named[axis]) out += fmt::format("{}{}={}", out.empty() ? "" : ",", kNames[axis], degrees[axis]);
  }
  return out;
}

Error of_another_save(const std::string& file, const std::string& other, const Reading& reading) {
  return reading.error(ErrorKind::kFormat, file,
                       fmt::format("belongs to another save than {}: the ranks had other parallelisms; move one of the "
                                   "two away",
                                   shown(other)));
}

void add_rank_file(const RankName& name, RankFile file, RankFiles& set, const Reading& reading) {
  std::array<bool, kAxes> named{};
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    named[axis] = name.ranks[axis].has_value();
    file.rank[axis] = name.ranks[axis].value_or(0);
  }
  file.piece = name.piece;
  if (set.files.empty()) {
    set.set = name.set;
    set.named = named;
  } else if (set.named != named) {
    throw of_another_save(file.name, set.files.front().name, reading);
  }
  set.pieces = std::max(set.pieces, name.piece);
  set.files.push_back(std::move(file));
}

void find_degrees(std::span<RankFiles> sets) {
  for (RankFiles& set : sets) {
    std::ranges::sort(set.files, {}, [](const RankFile& file) { return std::tie(file.rank, file.piece, file.name); });
  }
  const Rank degrees = degrees_of(sets);
  for (RankFiles& set : sets) {
    for (std::size_t axis = 0; axis < kAxes; ++axis) set.degrees[axis] = set.named[axis] ? degrees[axis] : 1;
  }
}

void check_ranks(const RankFiles& set, std::string_view why, const Reading& reading) {
  const std::vector<std::string> missing = missing_files(set);
  if (missing.empty()) return;
  std::string others;
  for (std::size_t i = 1; i < missing.size(); ++i) {
    others += i == kMostMissing ? " and more" : (i == 1 ? "; so are " : ", ") + missing[i];
  }
  throw Error(ErrorKind::kNotFound,
              fmt::format("{}: the file is missing{}; {}, and {} is here{}", reading.path_of(missing.front()), others,
                          why, shown(set.files.front().name), reading.looked()));
}

std::vector<RankFiles> unmerged_files(Reading& reading) {
  std::map<std::string, RankFiles> sets;
  const auto add = [&](const RankName& name, const std::string& file) {
    RankFiles& set = sets[name.set];
    set.section = known_section(name.set).value_or(name.set);
    add_rank_file(name, {file, reading.number(file), &reading.header(file), {}, 0}, set, reading);
  };
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (const auto name = parse_rank_name(file)) add(*name, file);
  }
  // With data parallelism alone, only one rank writes, and names have no ranks.
  const auto optimizer = reading.sets().find(std::string(kSets[0]));
  if (sets.empty() && optimizer != reading.sets().end() && !optimizer->second.has_map) {
    for (const auto& [file, header] : reading.directory().safetensors) {
      const FilePiece piece = parse_file_piece(file);
      for (const std::string_view set : kSets) {
        if (piece.file == std::string(set) + std::string(kDataSuffix)) add({std::string(set), {}, piece.number}, file);
      }
    }
  }
  if (!sets.empty()) refuse_merged(sets.begin()->second.files.front(), reading);
  std::vector<RankFiles> out;
  for (auto& [name, set] : sets) out.push_back(std::move(set));
  if (out.empty()) return out;
  find_degrees(out);
  const std::uint32_t pieces = pieces_of_index(reading);
  for (RankFiles& set : out) {
    set.pieces = std::max(set.pieces, pieces);
    if (set.named != out.front().named) {
      throw of_another_save(set.files.front().name, out.front().files.front().name, reading);
    }
    check_ranks(set, "each rank wrote one (ignore_merge_optimizer)", reading);
  }
  return out;
}

RankFiles merged_files(const DataSet& set, const Reading& reading) {
  RankFiles out;
  out.set = set.name;
  out.section = set.section;
  out.is_numbered = true;
  for (const std::string& file : set.files) {
    out.files.push_back(RankFile{file, reading.number(file), &reading.header(file), {}, 0});
  }
  const auto number = [](const RankFile& file) { return parse_data_name(file.name).number; };
  std::ranges::stable_sort(out.files, {}, number);  // without padding, names have another order
  for (std::size_t i = 0; i < out.files.size(); ++i) out.files[i].rank[kSharding] = static_cast<std::uint32_t>(i);
  out.degrees[kSharding] = static_cast<std::uint32_t>(out.files.size());
  return out;
}

void check_numbers(const RankFiles& files, const Reading& reading) {
  const std::uint64_t count = parse_data_name(files.files.front().name).count;
  for (std::size_t i = 0; i < files.files.size(); ++i) {
    const std::string& file = files.files[i].name;
    const DataName name = parse_data_name(file);
    if (!name.numbered || name.count != count || name.number <= i || name.number > count) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("does not bear one of the numbers 1 to {} of {}", count, in_quotes(files.set)));
    }
    if (name.number == i + 1 && (i + 1 < files.files.size() || i + 1 == count)) continue;
    const std::uint64_t missing = name.number == i + 1 ? i + 2 : i + 1;
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: the file is missing; {} says that there are {}",
                            reading.path_of(name_of_number(missing, names_of(files.files))), shown(file), count));
  }
}

}  // namespace cairn::interop
