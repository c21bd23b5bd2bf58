#include "codes/idle_codecs.hpp"

#include <fmt/core.h>

#include <cstdint>

#include "base/text.hpp"
#include "codes/moment_pairs.hpp"
#include "comm/agree.hpp"

namespace cairn::codes {
namespace {

/// The findings about a section, in ascending order: no tensors, only other tensors, or moments.
enum class Found : std::uint64_t { kNothing, kTensors, kMoments };

/// The findings about a section on this rank.
struct InSection {
  Found found = Found::kNothing;
  std::string why;  ///< the reason why the codec does not code the first moment found
};

InSection look_for(std::span<const Source> state, const std::string& section, const quant::Codec& codec) {
  InSection here;
  for (const Source& source : state) {
    if (source.section != section) continue;
    here.found = Found::kTensors;
    if (!moments_of(source.name)) continue;
    return {Found::kMoments, fmt::format("its moments are left alone, as '{}': {}", base::printable(source.name),
                                         codec.left_alone(source.shape))};
  }
  return here;
}

}  // namespace

std::vector<std::string> idle_codecs(comm::Communicator& communicator, std::span<const Source> state,
                                     const std::map<std::string, const quant::Codec*>& codecs,
                                     const std::map<std::string, std::string>& coded) {
  std::vector<std::string> lines;
  for (const auto& [section, codec] : codecs) {
    if (coded.contains(section)) continue;
    InSection here;
    comm::agree(communicator, "look for what a codec codes",
                [&, &name = section, &of = codec] { here = look_for(state, name, *of); });
    const auto most = static_cast<Found>(communicator.max(static_cast<std::uint64_t>(here.found)));
    if (most == Found::kMoments) {
      const auto rank = communicator.lowest_rank_where(here.found == most);
      communicator.share(here.why, *rank);
    }
    comm::agree(communicator, "note a warning", [&, &name = section, &of = codec] {
      if (most == Found::kNothing) here.why = "no rank has a tensor of it";
      if (most == Found::kTensors) here.why = "no tensor of it is a moment of Adam by its name";
      lines.push_back(fmt::format("Options::quantisation.codecs: {} codes nothing in section '{}': {}",
                                  of->traits().name, base::printable(name), here.why));
    });
  }
  return lines;
}

}  // namespace cairn::codes
