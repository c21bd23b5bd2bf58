#include "codes/moment_pairs.hpp"

#include <fmt/core.h>

#include <array>
#include <cctype>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"

namespace cairn::codes {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kWords = {{
    {"exp_avg", "exp_avg_sq"},
    {"moment1_0", "moment2_0"},
    {"moment1", "moment2"},
    {"adam_m", "adam_v"},
}};

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The position of the last occurrence of `word` as a separate word, or npos.
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

namespace {

/// Numbers of sources by (section, name), in the order of the rank's state.
using Named = std::map<std::pair<std::string_view, std::string_view>, std::vector<std::uint32_t>>;

Error unpaired(const Source& source, const quant::Codec& codec, const std::string& what) {
  return {ErrorKind::kState,
          fmt::format("tensor '{}' (section {}): {}; {} codes both moments together", base::printable(source.name),
                      base::printable(source.section), what, codec.traits().name)};
}

void check_pair(const Source& first, const Source& second, const quant::Codec& codec) {
  if (first.shape != second.shape) {
    throw unpaired(first, codec, fmt::format("has another shape than '{}'", base::printable(second.name)));
  }
  if (first.memory != second.memory) {
    throw unpaired(first, codec, fmt::format("'{}' lies in other memory (host, device)", base::printable(second.name)));
  }
  if (first.boxes != second.boxes) {
    throw unpaired(first, codec, fmt::format("this rank holds other boxes of '{}'", base::printable(second.name)));
  }
}

}  // namespace

std::map<std::string, const quant::Codec*> codecs_of(const Quantisation& quantisation) {
  std::map<std::string, const quant::Codec*> codecs;
  if (quantisation.disable_ckpt_quant) return codecs;
  for (const auto& [section, name] : quantisation.codecs) {
    if (name != "off") codecs.emplace(section, &quant::find_codec(name));
  }
  return codecs;
}

SortedState sort_state(std::span<const Source> state, const std::map<std::string, const quant::Codec*>& codecs) {
  Named seconds;
  struct First {
    std::uint32_t source = 0;
    const quant::Codec* codec = nullptr;
    std::string second;
  };
  std::vector<First> firsts;
  SortedState sorted;
  for (std::uint32_t i = 0; i < state.size(); ++i) {
    const Source& source = state[i];
    const auto codec = codecs.find(source.section);
    const auto names = codec == codecs.end() ? std::nullopt : moments_of(source.name);
    if (!names) {
      sorted.rest.push_back(i);
      continue;
    }
    quant::require_f32(*codec->second, source.name, source.dtype);
    if (!codec->second->left_alone(source.shape).empty()) {
      sorted.rest.push_back(i);
    } else if (names->first == source.name) {
      firsts.push_back({i, codec->second, names->second});
    } else {
      seconds[{source.section, source.name}].push_back(i);
    }
  }
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> used;
  for (const First& first : firsts) {
    const Source& source = state[first.source];
    const auto found = seconds.find({source.section, first.second});
    std::size_t& taken = used[{source.section, first.second}];
    if (found == seconds.end() || taken == found->second.size()) {
      throw unpaired(source, *first.codec, fmt::format("this rank does not hold '{}'", base::printable(first.second)));
    }
    const std::uint32_t second = found->second[taken++];
    check_pair(source, state[second], *first.codec);
    sorted.pairs.push_back({first.source, second, first.codec});
  }
  for (const auto& [key, numbers] : seconds) {
    const auto taken = used.find(key);
    if (taken != used.end() && taken->second == numbers.size()) continue;
    const Source& source = state[numbers.back()];
    throw unpaired(source, *codecs.at(source.section), "this rank does not hold the first moment");
  }
  return sorted;
}

}  // namespace cairn::codes
