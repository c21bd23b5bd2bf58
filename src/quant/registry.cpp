// The list of codecs: one line for each.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/codec.hpp"
#include "quant/own_codec.hpp"
#include "quant/paddle_codec.hpp"

namespace cairn::quant {

std::span<const Codec* const> all_codecs() {
  static const std::array codecs = {
      &own_q8(),
      &own_q4(),
      &paddle_o1(),
      &paddle_o2(),
  };
  return codecs;
}

const Codec& find_codec(std::string_view name) {
  const auto codecs = all_codecs();
  const auto found =
      std::find_if(codecs.begin(), codecs.end(), [&](const Codec* c) { return c->traits().name == name; });
  if (found != codecs.end()) return **found;
  std::vector<std::string> names;
  for (const Codec* codec : codecs) names.push_back(codec->traits().name);
  throw Error(ErrorKind::kUsage,
              fmt::format("no codec is called '{}'; there are: {}", base::printable(name), base::joined(names)));
}

}  // namespace cairn::quant
