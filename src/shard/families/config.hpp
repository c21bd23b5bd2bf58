// Typed access to a Hugging Face config.json; every error names the key.
//
// Numbers are bounded so that a hostile file can neither overflow a shape nor request billions of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "cairn/dtype.hpp"

namespace cairn::shard {

class Config {
 public:
  /// Throws Error(kFormat) if the text is not JSON; the calls below throw that error if the document is not an object.
  explicit Config(std::string_view json_text)
      : json_(base::Json::parse(json_text, kDocument, {.dialect = base::JsonDialect::kPython})) {}

  /// Whether a key is present and not null.
  [[nodiscard]] bool has(std::string_view key) const { return find(key).has_value(); }
  /// A whole number from 1 to 2^31 (with a fallback: from 0). Throws Error(kFormat).
  [[nodiscard]] std::uint64_t number(std::string_view key) const;
  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t fallback) const;
  /// Number of layers or experts: from 1 to 65536.
  [[nodiscard]] std::uint64_t count(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] std::vector<std::uint64_t> numbers(std::string_view key) const;

  /// `dtype` (transformers 5) or `torch_dtype`; F32 when both are missing, as in PyTorch.
  [[nodiscard]] DType dtype() const;

  /// The content of quantization_config; nothing if it is missing. Missing block sizes are 0.
  struct Quantization {
    std::string method;
    std::uint64_t block_rows = 0;
    std::uint64_t block_columns = 0;
  };
  [[nodiscard]] std::optional<Quantization> quantization() const;

 private:
  static constexpr const char* kDocument = "config.json";

  [[nodiscard]] base::JsonReader document() const { return {json_, kDocument}; }
  /// The value of a key; nothing if it is absent or null.
  [[nodiscard]] std::optional<base::JsonReader> find(std::string_view key) const;

  base::Json json_;
};

}  // namespace cairn::shard
