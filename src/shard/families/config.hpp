// A Hugging Face config.json as the families read it: typed access that names the key in every error.
//
// Numbers are bounded so that a hostile file can neither overflow a shape nor ask for billions of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/dtype.hpp"

namespace cairn::shard {

class Config {
 public:
  /// Throws Error(kFormat) when the text is no JSON object.
  explicit Config(std::string_view json_text);

  /// False for a key that is absent or null.
  [[nodiscard]] bool has(std::string_view key) const;
  /// A whole number from 1 to 2^31 (with a fallback: from 0). Throws Error(kFormat).
  [[nodiscard]] std::uint64_t number(std::string_view key) const;
  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t fallback) const;
  /// For counts of layers and experts: at most 65536.
  [[nodiscard]] std::uint64_t count(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] std::vector<std::uint64_t> numbers(std::string_view key) const;

  /// `dtype` (transformers 5) or `torch_dtype`; F32 when neither is there, as in PyTorch.
  [[nodiscard]] DType dtype() const;

  /// Absent without quantization_config. Block sizes are 0 when they are not given.
  struct Quantization {
    std::string method;
    std::uint64_t block_rows = 0;
    std::uint64_t block_columns = 0;
  };
  [[nodiscard]] std::optional<Quantization> quantization() const;

 private:
  /// Null for a key that is absent or null; at() throws then.
  [[nodiscard]] const base::Json* find(std::string_view key) const;
  [[nodiscard]] const base::Json& at(std::string_view key) const;

  base::Json document_;
};

}  // namespace cairn::shard
