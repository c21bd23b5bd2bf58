// Parses file names by hand: the patterns are few and fixed.
#include "interop/file_names.hpp"

#include <algorithm>
#include <array>

#include "base/digits.hpp"
#include "format/limits.hpp"

namespace cairn::interop {
namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

/// Whether a shard number can have that many digits: five, or up to 18 if the count needs them.
bool is_shard_number(std::size_t digits) { return digits >= 5 && digits <= 18; }

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

bool is_data_name(std::string_view file) { return parse_file_piece(file).file.ends_with(kDataSuffix); }

DataName parse_data_name(std::string_view file) {
  const std::string_view stem = without_suffix(file, kDataSuffix);
  const DataName plain{std::string(stem), false, 0, 0};
  const std::size_t of = stem.rfind("-of-");
  if (of == std::string_view::npos) return plain;

  const std::string_view before = stem.substr(0, of);
  const std::string_view after = stem.substr(of + 4);
  const std::size_t number = base::trailing_digits(before);
  const std::size_t count = base::leading_digits(after);
  // Older diffusers files have their variant after the number: "model-00001-of-00002.fp16.safetensors".
  const std::string_view variant = after.substr(count);
  if (!is_shard_number(number) || !is_shard_number(count)) return plain;
  if (!variant.empty() && variant.front() != '.') return plain;
  const std::string_view head = before.substr(0, before.size() - number);
  if (!head.ends_with('-')) return plain;
  return {std::string(head.substr(0, head.size() - 1)) + std::string(variant), true,
          base::number_in<std::uint64_t>(before.substr(before.size() - number)).value(),
          base::number_in<std::uint64_t>(after.substr(0, count)).value()};
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
