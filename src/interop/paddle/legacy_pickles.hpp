// The content of PaddlePaddle's trainer pickles: tensors under the names in the pickles, and the places of their bytes.
//
//   weights    {"llama.norm.weight": array, ...,
//               "StructuredToParameterName@@": {"llama.norm.weight": "norm_0.w_0", ...}}
//   optimizer  {"norm_0.w_0_fp32_master_0_moment1_0": tuple((name, array)), ...,
//               "master_weights": {"norm_0.w_0": tuple((name, array)), ...}, "LR_Scheduler": {...}}
//
// The second name of a parameter, the static one, comes from a counter in a process, and so means something only with
// the weights of the same process. Without master weights the keys lack "_fp32_master_0". Nothing in pickles is
// executed (pickle/pickle.hpp). A tensor whose bytes are not stored unchanged and in row-major order is an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/dtype.hpp"
#include "format/safetensors.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// A tensor in a pickle.
struct PickledTensor {
  std::string key;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset_bytes = 0;  ///< in the file
  std::uint64_t size_bytes = 0;
};

/// Static name -> the parameter's names in the model, of which tied weights have several.
using StaticNames = std::map<std::string, std::vector<std::string>, std::less<>>;

struct PickledWeights {
  std::vector<PickledTensor> tensors;  ///< in file order
  StaticNames names;                   ///< empty: the file has none
};

struct PickledOptimizer {
  std::vector<PickledTensor> states;
  std::optional<std::vector<PickledTensor>> masters;
};

/// read_weights() and read_optimizer() throw Error(kFormat) naming file and tensor, and as Reading::open().
PickledWeights read_weights(const std::string& file, Reading& reading);
PickledOptimizer read_optimizer(const std::string& file, Reading& reading);

/// "norm_0.w_0" and "moment1_0" from a key of the optimizer; nothing if no static name is a prefix of the key.
std::optional<std::pair<std::string_view, std::string_view>> split_state_key(std::string_view key,
                                                                             const StaticNames& names);

/// The tensors as a safetensors header would list them, under their keys.
format::SafetensorsHeader header_of(std::vector<PickledTensor> tensors, std::uint64_t file_bytes);

}  // namespace cairn::interop
