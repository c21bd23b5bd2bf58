#include "interop/paddle/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "interop/paddle/config.hpp"
#include "interop/paddle/families.hpp"
#include "interop/paddle/paddle.hpp"
#include "interop/paddle/slices.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr std::string_view kModel = "model";
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";
constexpr std::string_view kAdapter = "adapter";

/// Dtypes that the readers of both packages support.
constexpr std::array<DType, 14> kDtypes = {DType::kBool, DType::kU8,   DType::kI8,  DType::kF8E5M2, DType::kF8E4M3,
                                           DType::kI16,  DType::kI32,  DType::kU32, DType::kI64,    DType::kU64,
                                           DType::kF16,  DType::kBF16, DType::kF32, DType::kF64};

Error misread(const PaddlePackage& package, std::string_view parameter) {
  return Error(ErrorKind::kUsage, fmt::format("'{}': {} takes wrong scales of fused weights under tensor parallelism: "
                                              "leave the codec out, or give off",
                                              base::printable(parameter), package.name));
}

/// Walks over the catalog once, then over the share.
class Check {
 public:
  Check(const plan::PackedCatalog& catalog, const PaddlePackage& package) : catalog_(catalog), package_(package) {}

  PaddleFacts run(const CatalogShare& share) {
    if (catalog_.size() == 0) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("a state without tensors: {} would have nothing to resume from", package_.name));
    }
    for (Cursor at(catalog_, 0); at.next();) {
      if (at.section() != section_) {
        section_ = at.section();
        facts_.sections.insert(section_);
      }
      check_dtype(at);
      if (section_ == kModel) add_weight(at);
      if (is_state(at)) add_state(at);
      if (is_read()) note_end(at.name());
    }
    end_parameter();
    find_states();
    check_states();
    for (Cursor at(catalog_, share.first); at.next() && at.number() < share.end;) compare_with_weight(at);
    return std::move(facts_);
  }

 private:
  using Cursor = plan::PackedCatalog::Cursor;

  [[nodiscard]] bool is_read() const {
    return section_ == kModel || section_ == kAdapter || section_ == kOptimizer || section_ == kMasters;
  }
  static bool is_state(const Cursor& at) { return at.section() == kOptimizer && !is_scale_name(at.name()); }

  void check_dtype(const Cursor& at) const {
    if (at.dtype() == DType::kU16) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("tensor '{}' (section {}) is U16, which is BF16 in files of {}: store it in another dtype",
                      base::printable(at.name()), base::printable(section_), package_.name));
    }
    if (!is_read() || std::ranges::find(kDtypes, at.dtype()) != kDtypes.end()) return;
    throw Error(ErrorKind::kUsage,
                fmt::format("tensor '{}' (section {}) is {}, which {} does not read", base::printable(at.name()),
                            section_, name_of(at.dtype()), package_.name));
  }

  void add_weight(const Cursor& at) {
    facts_.is_f32_model = facts_.is_f32_model && at.dtype() == DType::kF32;
    if (facts_.layer.empty() && at.name().find(".layers.") != std::string_view::npos) facts_.layer = at.name();
    take_family(model_, at.name());
    if (at.shape().size() != 2 || !at.name().ends_with(".weight")) return;
    if (!facts_.feed_forward && is_feed_forward(at.name())) facts_.feed_forward = at.tensor();
    if (is_by_family(at.name())) {
      facts_.by_family.try_emplace(std::string(module_of(at.name())),
                                   PaddleFacts::Weight{std::string(at.name()), at.tensor().shape, std::nullopt});
    }
  }

  static bool is_feed_forward(std::string_view name) {
    return name.ends_with(".gate_proj.weight") && name.find("vis") == std::string_view::npos;
  }

  /// Whether PaddleFormers transposes a weight of that name in the files of some models but not of others.
  [[nodiscard]] bool is_by_family(std::string_view name) const {
    const bool is_query = model_.family.empty() && name.ends_with(".q_proj.weight");  // DeepSeek-V3's is not transposed
    return package_.linears_out_in && (name == kPaddleHead || is_query || !is_turned_in_file(model_, name));
  }

  /// Finds the shapes of the states of the weights in by_family, in the optimizer or the master weights.
  void find_states() {
    for (auto& [module, weight] : facts_.by_family) {
      auto state = catalog_.find(kOptimizer, weight.name + std::string(kFirstMoment));
      if (!state) state = catalog_.find(kMasters, weight.name);
      if (state && catalog_.at(*state).shape.size() == 2) weight.state = catalog_.at(*state).shape;
    }
  }

  void note_end(std::string_view name) {
    const std::string_view parameter = paddle_parameter_of(section_, name);
    if (parameter.ends_with(kPaddleEmbedding) || parameter == kPaddleHead) facts_.ends.emplace(section_, parameter);
  }

  void add_state(const Cursor& at) {
    const std::size_t slash = at.name().find('/');
    if (slash == std::string_view::npos || at.name().find('/', slash + 1) != std::string_view::npos) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' of section optimizer is not called '<parameter>/moment1_0' or the like: {} "
                              "would not find it",
                              base::printable(at.name()), package_.name));
    }
    const bool is_coded = is_paddle_code(section_, at.name(), at.dtype());
    if (is_coded) note_codes(at.name().substr(0, slash));
    if (at.name().substr(0, slash) != parameter_) end_parameter();
    parameter_ = at.name().substr(0, slash);
    own_ |= bit_of(at.name().substr(slash + 1));
    if (is_coded && at.dtype() == DType::kI8) facts_.stage = at.name().ends_with(kFirstMoment) ? "O1" : "O2";
    if (is_paddle_code_of_both(section_, at.name(), at.dtype())) own_ |= bit_of(kFirstMoment.substr(1));
  }

  /// Notes codes of query, key and value, which only config.json shows to be misread; throws for other misread codes.
  void note_codes(std::string_view parameter) {
    const auto marks = marks_of(model_, parameter);
    if (marks && marks->find_first_of("go") != std::string_view::npos) {
      if (facts_.coded.size() < 64) facts_.coded.emplace(parameter);
    } else if (has_misread_scales(model_, parameter)) {
      throw misread(package_, parameter);
    }
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

  /// Finds the weight of a state or a master weight; remembers the last weight.
  void find_weight(const Cursor& at) {
    const std::string_view parameter = paddle_parameter_of(at.section(), at.name());
    if (at.section() == section_of_parameter_ && parameter == parameter_) return;
    section_of_parameter_ = at.section();
    parameter_ = parameter;
    const auto weight = catalog_.find(kModel, parameter_);
    shape_.reset();
    if (weight) {
      shape_ = catalog_.at(*weight).shape;
      const bool is_matrix = shape_->size() == 2 && package_.linears_out_in;
      if (is_matrix && is_by_family(parameter_)) {
        shape_.reset();  // check_config() compares the shapes
      } else if (is_matrix && *is_turned_in_file(model_, parameter_)) {
        std::swap(shape_->front(), shape_->back());
      }
      return;
    }
    if (at.section() != kOptimizer || catalog_.find(kAdapter, parameter_)) return;
    throw Error(ErrorKind::kUsage, fmt::format("the optimizer has states of '{}', which is no weight of the model: {} "
                                               "would not find its place",
                                               base::printable(parameter_), package_.name));
  }

  void compare_with_weight(const Cursor& at) {
    const bool has_weights = facts_.sections.contains(kModel) || facts_.sections.contains(kAdapter);
    if (!has_weights || (!is_state(at) && at.section() != kMasters)) return;
    find_weight(at);
    const bool is_alike =
        at.section() == kMasters || at.name().ends_with(kFirstMoment) || at.name().ends_with(kSecondMoment);
    if (!is_alike || !shape_ || std::ranges::equal(*shape_, at.shape())) return;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("tensor '{}' (section {}) is {}, expected {} by its weight: {} has linear weights {}, and "
                    "their master weights and moments [in, out]",
                    base::printable(at.name()), at.section(), shard::shape_text(at.shape()), shard::shape_text(*shape_),
                    package_.name, package_.linears_out_in ? "[out, in]" : "[in, out]"));
  }

  struct Family {
    std::uint64_t states = 0;  ///< a bit for each state
    std::string parameter;     ///< the first parameter with these states
  };

  const plan::PackedCatalog& catalog_;
  const PaddlePackage& package_;
  PaddleFacts facts_;
  ModelFacts model_;  ///< from names alone
  std::string section_;
  std::map<std::string, std::size_t, std::less<>> bits_;  ///< bit of each state
  std::vector<Family> families_;
  std::string parameter_;  ///< parameter of the last state
  std::uint64_t own_ = 0;
  std::string section_of_parameter_;                 ///< section of the last parameter that was compared
  std::optional<std::vector<std::uint64_t>> shape_;  ///< expected shape of the parameter's states; nothing: unknown
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

std::string problem_of_adam(const PaddlePackage& package, const PaddleFacts& facts) {
  constexpr std::array<const char*, 4> kNeeded = {"moment1_0", "moment2_0", "beta1_pow_acc_0", "beta2_pow_acc_0"};
  if (!facts.states.contains(kNeeded[0]) && !facts.states.contains(kNeeded[1])) return "";
  for (const char* state : kNeeded) {
    if (facts.states.contains(state)) continue;
    return fmt::format(
        "the optimizer has moments of its parameters and no '<parameter>/{}': {} resumes from them only with "
        "ignore_load_lr_and_optim, which leaves them out",
        state, package.name);
  }
  return "";
}

std::optional<bool> is_out_in(std::string_view name, std::span<const std::uint64_t> shape, const base::Json& config) {
  constexpr std::array<std::string_view, 9> kOfHidden = {"gate_proj.weight", "up_proj.weight", "q_proj.weight",
                                                         "k_proj.weight",    "v_proj.weight",  ".gate.weight",
                                                         "w1.weight",        "w3.weight",      "q_a_proj.weight"};
  constexpr std::array<std::string_view, 2> kToHidden = {"down_proj.weight", "o_proj.weight"};
  const auto is_end = [&](std::string_view end) { return name.ends_with(end); };
  const bool is_of = std::ranges::any_of(kOfHidden, is_end);
  const auto hidden = size_of_config(config, "hidden_size");
  // Vision towers have different sizes.
  const bool is_known = is_of || std::ranges::any_of(kToHidden, is_end);
  if (!is_known || name.find("vis") != std::string_view::npos || shape.size() != 2 || !hidden) return std::nullopt;
  if ((shape[0] == *hidden) == (shape[1] == *hidden)) return std::nullopt;
  return (shape[1] == *hidden) == is_of;
}

namespace {

void check_names(const PaddlePackage& package, const PaddleFacts& facts, const ModelFacts& model) {
  const FamilyPrefixes prefixes = prefixes_of(model, package);
  if (prefixes.other.empty() || !facts.layer.starts_with(prefixes.other)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("weight '{}': names of {}'s model {} begin with '{}': it would not find it",
                          base::printable(facts.layer), package.name, model.family, prefixes.own));
}

void check_orders(const PaddlePackage& package, const PaddleFacts& facts, const base::Json& config,
                  const ModelFacts& model) {
  if (!facts.feed_forward) return;
  const plan::CatalogTensor& weight = *facts.feed_forward;
  const auto order = is_out_in(weight.name, weight.shape, config);
  const auto turned = is_turned_in_model(model, package, weight.name);
  if (!order || !turned || *order != *turned) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("weight '{}' is {}: {} has linear weights {}, by the sizes of config.json the other way round",
                  base::printable(weight.name), shard::shape_text(weight.shape), package.name,
                  *turned ? "[in, out]" : "[out, in]"));
}

/// Compares the shape of each weight in PaddleFacts::by_family with the shape of its states.
void check_states_of(const PaddlePackage& package, const PaddleFacts& facts, const ModelFacts& model) {
  for (const auto& [module, weight] : facts.by_family) {
    if (!weight.state || weight.shape[0] == weight.shape[1]) continue;
    const auto turned = is_turned_in_file(model, weight.name);
    if (!turned) continue;
    std::vector<std::uint64_t> expected = weight.shape;
    if (*turned) std::swap(expected[0], expected[1]);
    if (expected == *weight.state) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("master weight or moments of '{}' are {}, expected {} by its weight in {}'s model {}",
                            base::printable(weight.name), shard::shape_text(*weight.state), shard::shape_text(expected),
                            package.name, model.family));
  }
}

/// Refuses codes of fused weights whose scales would be misread, as only config.json shows.
void check_codes(const PaddlePackage& package, const PaddleFacts& facts, const ModelFacts& model) {
  for (const std::string& parameter : facts.coded) {
    if (has_misread_scales(model, parameter)) throw misread(package, parameter);
  }
}

/// Requires the states of a tied weight under both of its names, because several processes look up both.
void check_ties(const PaddlePackage& package, const PaddleFacts& facts, const ModelFacts& model) {
  if (!is_tied(model)) return;
  const auto is_embedding = [](const auto& end) { return end.first == kModel && end.second != kPaddleHead; };
  const auto embedding = std::ranges::find_if(facts.ends, is_embedding);
  const std::string head(kPaddleHead);
  if (embedding == facts.ends.end() || !facts.ends.contains({std::string(kModel), head})) return;
  for (const std::string_view section : {kOptimizer, kMasters}) {
    const bool has_embedding = facts.ends.contains({std::string(section), embedding->second});
    const bool has_head = facts.ends.contains({std::string(section), head});
    if (has_embedding == has_head) continue;
    const std::string& here = has_head ? head : embedding->second;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("section {} has '{}' and not '{}', which is the same weight (tie_word_embeddings): {} looks "
                    "for both on several processes; give it under both names",
                    section, base::printable(here), base::printable(has_head ? embedding->second : head),
                    package.name));
  }
}

}  // namespace

void check_config(const PaddlePackage& package, const PaddleFacts& facts, const base::Json& config,
                  std::uint64_t cards) {
  const ModelFacts model = facts_of(config, facts.layer);
  check_names(package, facts, model);
  check_orders(package, facts, config, model);
  check_states_of(package, facts, model);
  check_codes(package, facts, model);
  if (cards != 1) check_ties(package, facts, model);
}

}  // namespace cairn::interop
