#include "codes/moment_pairs.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "codes/moment_names.hpp"
#include "quant/check.hpp"

namespace cairn::checkpoint {
namespace {

/// Sources of one section by name, in the order in which the rank gave them.
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

}  // namespace cairn::checkpoint
