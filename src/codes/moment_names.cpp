#include "codes/moment_names.hpp"

#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace cairn::checkpoint {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kWords = {{
    {"exp_avg", "exp_avg_sq"},
    {"moment1_0", "moment2_0"},
    {"moment1", "moment2"},
    {"adam_m", "adam_v"},
}};

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Where the last occurrence of a word begins, or npos.
std::size_t find_word(std::string_view name, std::string_view word) {
  for (std::size_t at = name.rfind(word); at != std::string_view::npos; at = at == 0 ? at : name.rfind(word, at - 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_character(name[at - 1]);
    const bool ends = end == name.size() || !is_word_character(name[end]);
    if (begins && ends) return at;
    if (at == 0) break;
  }
  return std::string_view::npos;
}

std::string replaced(std::string_view name, std::size_t at, std::string_view word, std::string_view with) {
  return std::string(name.substr(0, at)) + std::string(with) + std::string(name.substr(at + word.size()));
}

}  // namespace

std::optional<quant::MomentNames> moments_of(std::string_view name) {
  for (const auto& [first, second] : kWords) {
    for (const std::string_view word : {first, second}) {
      const std::size_t at = find_word(name, word);
      if (at == std::string_view::npos) continue;
      return quant::MomentNames{replaced(name, at, word, first), replaced(name, at, word, second)};
    }
  }
  return std::nullopt;
}

}  // namespace cairn::checkpoint
