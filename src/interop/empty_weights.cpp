#include "interop/empty_weights.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/digits.hpp"
#include "interop/reading.hpp"
#include "quant/cast.hpp"

namespace cairn::interop {
namespace {

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool is_of_weight(std::string_view name) {
  const std::string_view last = last_part(name);
  return last == "weight" || last.ends_with("_proj") || name.find("lora_") != std::string_view::npos;
}

}  // namespace

EmptyWeights empty_weights(const plan::StoredTensors& tensors) {
  using Key = std::pair<std::string, std::string>;  // section and name
  std::vector<Key> candidates;
  for (auto cursor = tensors.cursor(); cursor.next();) {
    const bool is_empty = cursor.shape().size() == 1 && cursor.shape()[0] == 0;
    if (is_empty && quant::is_float(cursor.dtype()) && cursor.section() != "optimizer") {
      candidates.emplace_back(cursor.section(), cursor.name());
    }
  }
  EmptyWeights out;
  if (candidates.empty()) return out;
  std::set<Key> like_candidates;
  for (const auto& [section, name] : candidates) like_candidates.emplace(section, base::without_numbers(name));
  std::set<Key> full;  // patterns of candidates that have elements under another number
  for (auto cursor = tensors.cursor(); cursor.next();) {
    if (std::ranges::find(cursor.shape(), 0U) != cursor.shape().end()) continue;
    Key key(cursor.section(), base::without_numbers(cursor.name()));
    if (like_candidates.contains(key)) full.insert(std::move(key));
  }
  const std::set<Key> all(candidates.begin(), candidates.end());
  const auto is_weight = [&](const Key& key) {
    return is_of_weight(key.second) || full.contains({key.first, base::without_numbers(key.second)});
  };
  for (const Key& key : candidates) {
    const std::string_view name = key.second;
    const bool is_bias = last_part(name) == "bias";
    const std::string weight = std::string(name.substr(0, name.size() - last_part(name).size())) + "weight";
    if (is_weight(key) || (is_bias && all.contains({key.first, weight}))) out.names.push_back(key.second);
  }
  if (out.names.empty()) return out;
  out.words = fmt::format(
      "{} of {} tensors have shape [0], as ZeRO-3 leaves weights on a rank: {}; they were saved without gathering: "
      "save with stage3_gather_16bit_weights_on_model_save, or make the weights from DeepSpeed's files with "
      "zero_to_fp32.py",
      out.names.size(), tensors.size(), list_some(out.names));
  return out;
}

}  // namespace cairn::interop
