// Parses file names by hand: the patterns are few and fixed.
#include "interop/file_names.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "format/limits.hpp"

namespace cairn::interop {
namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kNumberedSuffix = ".safetensors-";  // "model.safetensors-00001-of-00002"

/// Whether a file number can have that many digits. More would not fit a number.
bool is_file_number(std::size_t digits) { return digits >= 1 && digits <= 18; }

std::string_view without_suffix(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

}  // namespace

FilePiece parse_file_piece(std::string_view file) {
  constexpr std::string_view kMiddle = "_shard_";
  const std::size_t digits = base::trailing_digits(file);
  if (digits < 4 || digits > 6) return {file, 0};
  const std::string_view head = file.substr(0, file.size() - digits);
  if (!head.ends_with(kMiddle)) return {file, 0};
  const std::string_view whole = head.substr(0, head.size() - kMiddle.size());
  if (!whole.ends_with(kDataSuffix)) return {file, 0};
  return {whole, base::number_in<std::uint32_t>(file.substr(head.size())).value()};
}

bool is_data_name(std::string_view file) {
  if (parse_file_piece(file).file.ends_with(kDataSuffix)) return true;
  if (file.find(kNumberedSuffix) == std::string_view::npos) return false;
  const DataName name = parse_data_name(file);
  return name.numbered && file.substr(0, name.number_at).ends_with(kNumberedSuffix) &&
         base::leading_digits(file.substr(file.rfind('-') + 1)) == file.size() - file.rfind('-') - 1;
}

DataName parse_data_name(std::string_view file) {
  const std::string_view stem = without_suffix(file, kDataSuffix);
  const DataName plain{.set = std::string(stem)};
  const std::size_t of = stem.rfind("-of-");
  if (of == std::string_view::npos) return plain;

  const std::string_view before = stem.substr(0, of);
  const std::string_view after = stem.substr(of + 4);
  const std::size_t number = base::trailing_digits(before);
  const std::size_t count = base::leading_digits(after);
  // Older diffusers files have their variant after the number: "model-00001-of-00002.fp16.safetensors".
  const std::string_view variant = after.substr(count);
  if (!is_file_number(number) || !is_file_number(count)) return plain;
  if (!variant.empty() && variant.front() != '.') return plain;
  const std::string_view head = before.substr(0, before.size() - number);
  if (!head.ends_with('-')) return plain;
  return {.set = std::string(without_suffix(head.substr(0, head.size() - 1), kDataSuffix)) + std::string(variant),
          .numbered = true,
          .number = base::number_in<std::uint64_t>(before.substr(before.size() - number)).value(),
          .count = base::number_in<std::uint64_t>(after.substr(0, count)).value(),
          .number_at = head.size(),
          .number_digits = number};
}

std::string with_number(std::string_view file, std::uint64_t number, std::size_t digits) {
  const DataName name = parse_data_name(file);
  return fmt::format("{}{:0{}d}{}", file.substr(0, name.number_at), number, digits,
                     file.substr(name.number_at + name.number_digits));
}

bool names_a_rank(std::string_view file) {
  const std::string stem = base::lower(std::string(without_suffix(file, kDataSuffix)));
  constexpr std::string_view kBetween = "-_.";
  bool is_after_word = false;
  for (std::size_t at = 0; at < stem.size();) {
    const std::size_t end = std::min(stem.find_first_of(kBetween, at), stem.size());
    const std::string_view word = std::string_view(stem).substr(at, end - at);
    const std::size_t digits = base::trailing_digits(word);
    const std::string_view letters = word.substr(0, word.size() - digits);
    const bool is_word = letters == "rank" || letters == "tp" || letters == "pp" || letters == "mp" || letters == "ep";
    if (digits > 0 && (is_word || (letters.empty() && is_after_word))) return true;
    is_after_word = is_word && digits == 0;
    at = end + 1;
  }
  return false;
}

bool looks_numbered(std::string_view file) {
  if (parse_data_name(file).numbered) return false;
  const std::string stem = base::lower(std::string(without_suffix(file, kDataSuffix)));
  constexpr std::string_view kBetween = "-_. ";
  for (std::size_t at = stem.find("of"); at != std::string::npos; at = stem.find("of", at + 1)) {
    std::string_view before = std::string_view(stem).substr(0, at);
    std::string_view after = std::string_view(stem).substr(at + 2);
    before = before.substr(0, before.find_last_not_of(kBetween) + 1);
    after.remove_prefix(std::min(after.find_first_not_of(kBetween), after.size()));
    if (base::trailing_digits(before) > 0 && base::leading_digits(after) > 0) return true;
  }
  return false;
}

std::optional<std::string> set_of_index(std::string_view file) {
  if (file.ends_with(kIndexSuffix)) return std::string(without_suffix(file, kIndexSuffix));
  constexpr std::string_view kMiddle = ".safetensors.index.";
  constexpr std::string_view kEnd = ".json";
  const std::size_t at = file.rfind(kMiddle);
  if (at == std::string_view::npos || !file.ends_with(kEnd)) return std::nullopt;
  const std::size_t from = at + kMiddle.size();
  if (file.size() <= from + kEnd.size()) return std::nullopt;
  return std::string(file.substr(0, at)) + "." + std::string(file.substr(from, file.size() - from - kEnd.size()));
}

std::optional<std::string> known_section(std::string_view set) {
  if (set == "model" || set == "optimizer" || set == "master_weights") return std::string(set);
  if (set == "adapter_model" || set == "peft_model") return "adapter";
  return std::nullopt;
}

bool belongs_to_model(std::string_view file) {
  constexpr std::array<std::string_view, 17> kSuffixes = {
      ".json",  ".jsonl",    ".txt",   ".md",  ".yaml", ".yml",   ".toml",
      ".ini",   ".jinja",                                                             // configurations and cards
      ".py",                                                                          // a model's own code
      ".model", ".tiktoken", ".vocab", ".spm", ".bpe",  ".codes", ".chat_template"};  // tokenizers
  constexpr std::array<std::string_view, 4> kTexts = {"LICENSE", "LICENCE", "NOTICE", "README"};
  const auto ends = [&](std::string_view suffix) { return file.size() > suffix.size() && file.ends_with(suffix); };
  // An index lists weights that are left behind.
  if (ends(".json") && file.find(".index.") != std::string_view::npos) return false;
  if (std::any_of(kSuffixes.begin(), kSuffixes.end(), ends)) return true;
  return std::any_of(kTexts.begin(), kTexts.end(), [&](std::string_view text) { return file.starts_with(text); });
}

bool is_bystander(std::string_view entry) {
  constexpr std::array<std::string_view, 14> kNames = {
      ".git",      ".gitattributes", ".gitignore",  ".gitmodules", ".gitkeep",           ".lfsconfig",   ".cache",
      ".DS_Store", "Thumbs.db",      "desktop.ini", "__pycache__", ".ipynb_checkpoints", ".huggingface", ".directory"};
  return std::ranges::find(kNames, entry) != kNames.end();
}

namespace {

constexpr std::string_view kBetween = " -_";

void strip_separators(std::string_view& text) {
  while (!text.empty() && kBetween.find(text.back()) != std::string_view::npos) text.remove_suffix(1);
}

/// Removes "(2)", "(copy)" or "(another copy)" from the end; false if there is none.
bool strip_parentheses(std::string_view& text) {
  const std::size_t open = text.rfind('(');
  if (!text.ends_with(')') || open == std::string_view::npos) return false;
  const std::string_view inner = text.substr(open + 1, text.size() - open - 2);
  const bool is_number = !inner.empty() && base::leading_digits(inner) == inner.size();
  if (!is_number && inner != "copy" && !inner.ends_with(" copy")) return false;
  text.remove_suffix(text.size() - open);
  return true;
}

/// Removes " copy", " - copy" or "-copy2" from the end; false if there is none.
bool strip_copy(std::string_view& text) {
  constexpr std::string_view kCopy = "copy";
  std::string_view rest = text;
  rest.remove_suffix(base::trailing_digits(rest));
  strip_separators(rest);
  if (!rest.ends_with(kCopy)) return false;
  rest.remove_suffix(kCopy.size());
  if (rest.empty() || kBetween.find(rest.back()) == std::string_view::npos) return false;
  text = rest;
  return true;
}

}  // namespace

std::string original_of(std::string_view file) {
  if (!file.ends_with(kDataSuffix)) return {};
  const std::string lower = base::lower(std::string(without_suffix(file, kDataSuffix)));
  std::string_view stem = lower;
  bool is_copy = strip_parentheses(stem);
  strip_separators(stem);
  is_copy = strip_copy(stem) || is_copy;
  strip_separators(stem);
  if (!is_copy || stem.empty()) return {};
  return std::string(file.substr(0, stem.size())) + std::string(kDataSuffix);
}

std::uint64_t most_text_bytes(std::string_view file) {
  constexpr std::uint64_t kTrainerBytes = 64 << 20;  // besides the step it has a log of all steps
  constexpr std::uint64_t kConfigBytes = 16 << 20;
  if (set_of_index(file) || file_kind(file) == FileKind::kIndex) return format::limits::kIndexBytes;
  if (file == "cairn.json") return format::limits::kManifestBytes;
  if (file == "trainer_state.json") return kTrainerBytes;
  return file == "config.json" ? kConfigBytes : 0;
}

bool is_cairn_file(std::string_view file) { return file == "cairn.json" || file == "cairn.blocks"; }

}  // namespace cairn::interop
