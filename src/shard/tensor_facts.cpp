// Resolving names to parameters; see tensor_facts.hpp.
#include "shard/tensor_facts.hpp"

#include <unordered_map>

#include "shard/box_math.hpp"
#include "shard/dotted_name.hpp"

namespace cairn::shard {
namespace {

struct Parameter {
  const TensorSpec* spec = nullptr;
  std::uint64_t position = 0;
};

using Parameters = std::unordered_map<std::string_view, Parameter>;

// Specs as the list gives them in section "model", else as the model says.
Parameters parameters_of(const Model& model, const std::vector<std::string>& sections,
                         const std::vector<TensorSpec>& tensors) {
  Parameters out;
  out.reserve(model.tensors.size());
  for (std::uint64_t i = 0; i < model.tensors.size(); ++i) out[model.tensors[i].name] = {&model.tensors[i], i};
  for (std::uint64_t i = 0; i < tensors.size(); ++i) {
    if (sections[i] != "model") continue;
    const auto [entry, added] = out.try_emplace(tensors[i].name, Parameter{&tensors[i], model.tensors.size() + i});
    if (!added) entry->second.spec = &tensors[i];
  }
  return out;
}

}  // namespace

std::vector<TensorFacts> facts_of(const Model& model, const std::vector<std::string>& sections,
                                  const std::vector<TensorSpec>& tensors) {
  const Parameters parameters = parameters_of(model, sections, tensors);
  std::vector<TensorFacts> out(tensors.size());
  for (std::uint64_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    TensorFacts& facts = out[i];
    const std::string_view name = tensor.name;
    facts.parameter = parameter_of(model, name);
    // Names that only the list knows: "optim.<name>.exp_avg" of an unknown model.
    if (facts.parameter.empty())
      facts.parameter =
          known_part_of(base_name(name), [&](std::string_view part) { return parameters.contains(part); });
    if (facts.parameter.empty()) facts.parameter = base_name(name);
    const bool is_state = facts.parameter.size() != name.size();
    if (is_state) {
      const auto at = static_cast<std::size_t>(facts.parameter.data() - name.data());
      facts.role = std::string(name.substr(0, at)) + std::string(name.substr(at + facts.parameter.size()));
    }
    const auto found = parameters.find(facts.parameter);
    const TensorSpec* spec = found == parameters.end() ? nullptr : found->second.spec;
    facts.parameter_dtype = spec != nullptr ? spec->dtype : tensor.dtype;
    facts.position = spec != nullptr ? found->second.position : model.tensors.size() + i;
    if (tensor.shape.empty()) {
      facts.follows_parameter = false;
    } else if (is_state) {
      facts.follows_parameter = spec != nullptr ? spec->shape == tensor.shape : elements_of(tensor.shape) > 1;
    }
  }
  return out;
}

}  // namespace cairn::shard
