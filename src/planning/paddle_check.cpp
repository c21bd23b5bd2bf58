#include "planning/paddle_check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "interop/paddle/paddle.hpp"

namespace cairn::checkpoint {
namespace {

using interop::kFirstMoment;
using interop::kSecondMoment;
using interop::PaddlePackage;

constexpr std::string_view kModel = "model";
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kAdapter = "adapter";

/// Model types whose PaddleNLP classes name their base model so, where others have "model.".
constexpr std::array<std::string_view, 8> kOwnPrefixes = {"llama",   "qwen2", "qwen2_moe",   "mistral",
                                                          "mixtral", "gemma", "deepseek_v2", "deepseek_v3"};

/// One walk over the catalog, and another one over the share.
class Check {
 public:
  Check(const plan::PackedCatalog& catalog, const PaddlePackage& package) : catalog_(catalog), package_(package) {}

  PaddleFacts run(const CatalogShare& share) {
    for (Cursor at(catalog_, 0); at.next();) {
      if (at.section() != section_) {
        section_ = at.section();
        facts_.sections.insert(section_);
      }
      if (section_ == kModel) facts_.is_f32_model = facts_.is_f32_model && at.dtype() == DType::kF32;
      if (is_state(at)) add_state(at);
    }
    end_parameter();
    check_states();
    parameter_.clear();
    for (Cursor at(catalog_, share.first); at.next() && at.number() < share.end;) compare_with_weight(at);
    return std::move(facts_);
  }

 private:
  using Cursor = plan::PackedCatalog::Cursor;

  static bool is_state(const Cursor& at) { return at.section() == kOptimizer && !interop::is_scale_name(at.name()); }

  void add_state(const Cursor& at) {
    const std::size_t slash = at.name().find('/');
    if (slash == std::string_view::npos || at.name().find('/', slash + 1) != std::string_view::npos) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' of section optimizer is not called '<parameter>/moment1_0' or the like: {} "
                              "would not find it",
                              base::printable(at.name()), package_.name));
    }
    const bool is_coded = is_paddle_code(section_, at.name(), at.dtype());
    if (is_coded && interop::has_misread_scales(at.name())) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}': {} takes wrong scales of fused gate and up under tensor "
                                                 "parallelism: leave the codec out, or give off",
                                                 base::printable(at.name()), package_.name));
    }
    if (at.name().substr(0, slash) != parameter_) end_parameter();
    parameter_ = at.name().substr(0, slash);
    own_ |= bit_of(at.name().substr(slash + 1));
    if (is_coded && at.dtype() == DType::kI8) facts_.stage = at.name().ends_with(kFirstMoment) ? "O1" : "O2";
    if (is_paddle_code_of_both(section_, at.name(), at.dtype())) own_ |= bit_of(kFirstMoment.substr(1));
  }

  std::uint64_t bit_of(std::string_view state) {
    auto known = bits_.find(state);
    if (known == bits_.end()) {
      known = bits_.emplace(state, bits_.size()).first;
      facts_.states.emplace(state);
    }
    if (known->second < 64) return 1ULL << known->second;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("parameters have more than 64 kinds of states, '{}' among them: {} has no optimizer of so many",
                    base::printable(state), package_.name));
  }

  void end_parameter() {
    const bool is_new = own_ != 0 && std::ranges::find(families_, own_, &Family::states) == families_.end();
    if (is_new) families_.push_back({own_, parameter_});
    own_ = 0;
  }

  void check_states() const {
    for (const Family& family : families_) {
      for (const auto& [state, bit] : bits_) {
        if ((family.states >> bit & 1) != 0) continue;
        throw Error(ErrorKind::kUsage,
                    fmt::format("'{}/{}' is missing, and other parameters have it: {} would not resume",
                                base::printable(family.parameter), base::printable(state), package_.name));
      }
    }
  }

  void compare_with_weight(const Cursor& at) {
    const bool has_weights = facts_.sections.contains(kModel) || facts_.sections.contains(kAdapter);
    if (!has_weights || !is_state(at)) return;
    const std::string_view parameter = paddle_parameter_of(at.section(), at.name());
    if (parameter == parameter_) return;
    parameter_ = parameter;
    if (catalog_.find(kModel, parameter_) || catalog_.find(kAdapter, parameter_)) return;
    throw Error(ErrorKind::kUsage, fmt::format("the optimizer has states of '{}', which is no weight of the model: {} "
                                               "would not find its place",
                                               base::printable(parameter_), package_.name));
  }

  struct Family {
    std::uint64_t states = 0;  ///< a bit for each
    std::string parameter;     ///< the first one that has these
  };

  const plan::PackedCatalog& catalog_;
  const PaddlePackage& package_;
  PaddleFacts facts_;
  std::string section_;
  std::map<std::string, std::size_t, std::less<>> bits_;  ///< of states
  std::vector<Family> families_;
  std::string parameter_;  ///< of the last state
  std::uint64_t own_ = 0;
};

}  // namespace

std::string_view paddle_parameter_of(std::string_view section, std::string_view name) {
  return section == kOptimizer ? name.substr(0, name.find('/')) : name;
}

bool is_paddle_code(std::string_view section, std::string_view name, DType dtype) {
  return section == kOptimizer && (dtype == DType::kI8 || dtype == DType::kU8) &&
         (name.ends_with(kFirstMoment) || name.ends_with(kSecondMoment));
}

bool is_paddle_code_of_both(std::string_view section, std::string_view name, DType dtype) {
  return section == kOptimizer && dtype == DType::kI8 && name.ends_with(kSecondMoment);
}

PaddleFacts check_for_paddle(const plan::PackedCatalog& catalog, const PaddlePackage& package,
                             const CatalogShare& share) {
  return Check(catalog, package).run(share);
}

std::string text_of_config(const base::Json& config, const char* key) {
  const base::Json* value = config.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

std::optional<std::uint64_t> size_of_config(const base::Json& config, const char* key) {
  const base::Json* value = config.find(key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->whole_number();
}

bool has_tied_weights(const base::Json& config) {
  const base::Json* tied = config.find("tie_word_embeddings");
  return tied != nullptr && *tied == base::Json(true);
}

std::optional<PaddlePrefixes> prefixes_of(const PaddlePackage& package, const base::Json& config) {
  const std::string type = text_of_config(config, "model_type");
  if (std::ranges::find(kOwnPrefixes, type) == kOwnPrefixes.end()) return std::nullopt;
  PaddlePrefixes prefixes{type + ".", "model."};
  if (!package.names_by_type) std::swap(prefixes.own, prefixes.other);
  return prefixes;
}

std::optional<bool> is_out_in(std::string_view name, std::span<const std::uint64_t> shape, const base::Json& config) {
  if (!name.ends_with("mlp.gate_proj.weight") && !name.ends_with("mlp.up_proj.weight")) return std::nullopt;
  const auto hidden = size_of_config(config, "hidden_size");
  const auto inner = size_of_config(config, "intermediate_size");
  if (shape.size() != 2 || !hidden || !inner || hidden == inner) return std::nullopt;
  if (shape[0] == *inner && shape[1] == *hidden) return true;
  if (shape[0] == *hidden && shape[1] == *inner) return false;
  return std::nullopt;
}

}  // namespace cairn::checkpoint
