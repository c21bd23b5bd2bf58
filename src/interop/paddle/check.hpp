// Checks a catalog for the tensors from which PaddlePaddle's trainers resume (interop/paddle/written.hpp). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "cairn/dtype.hpp"
#include "interop/form.hpp"
#include "interop/paddle/written.hpp"
#include "plan/catalog.hpp"

namespace cairn::interop {

/// Facts about a checkpoint as a whole, from its tensors.
struct PaddleFacts {
  std::set<std::string, std::less<>> sections;
  std::set<std::string, std::less<>> states;  ///< states of parameters: "moment1_0" and the like
  std::string stage = "O0";                   ///< ckpt_quant_stage
  bool is_f32_model = true;                   ///< all weights of section model are F32
  /// Section and parameter of the embedding and the head, which may be the same weight.
  std::set<std::pair<std::string, std::string>> ends;
  std::string layer;                                ///< name of some layer's weight; empty: none
  std::optional<plan::CatalogTensor> feed_forward;  ///< a weight whose order may follow from config.json
  struct Weight {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::optional<std::vector<std::uint64_t>> state;  ///< shape of the weight's moments or master weight
  };
  /// One weight of each module that PaddleFormers transposes in the files of some families but not of others.
  std::map<std::string, Weight, std::less<>> by_family;
  std::set<std::string, std::less<>> coded;  ///< at most 64 coded parameters that may be fused weights
};

/// Throws Error(kUsage), one line naming the item that the loader would not find, for a state from which it cannot
/// resume. Checks all names; weights are looked up only for the states in `share`, so that ranks can divide the work.
PaddleFacts check_for_paddle(const plan::PackedCatalog& catalog, const PaddlePackage& package,
                             const CatalogShare& share = {});

/// The reason why Adam would not continue: a kind of state that is missing for all parameters. Empty if Adam would
/// continue, or there are no moments.
std::string problem_of_adam(const PaddlePackage& package, const PaddleFacts& facts);

// Names of Paddle's tensors.

inline constexpr std::string_view kPaddleHead = "lm_head.weight";
inline constexpr std::string_view kPaddleEmbedding = "embed_tokens.weight";  ///< the end of the name

/// The parameter's name: "w" of "w/moment1_0" in section optimizer, and the whole name in any other section.
std::string_view paddle_parameter_of(std::string_view section, std::string_view name);

/// Whether the tensor has codes of a moment; or (`_of_both`) of both, which O2 stores under the second moment's name.
bool is_paddle_code(std::string_view section, std::string_view name, DType dtype);
bool is_paddle_code_of_both(std::string_view section, std::string_view name, DType dtype);

// Facts from config.json.

/// Throws Error(kUsage) if config.json implies names, orders of dimensions or ties that contradict the tensors, or that
/// codes are misread. `cards`: number of processes that will resume, 0 if unknown; one needs one name of a tied weight.
void check_config(const PaddlePackage& package, const PaddleFacts& facts, const base::Json& config,
                  std::uint64_t cards);

/// Whether a linear layer's weight is [out, in] rather than [in, out], by its shape and config.json's hidden_size;
/// nothing if shape and hidden_size are not conclusive.
std::optional<bool> is_out_in(std::string_view name, std::span<const std::uint64_t> shape, const base::Json& config);

}  // namespace cairn::interop
