// Name patterns of layout files: literal text, '*' for any text, and captures such as {layer} or {expert} for a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::shard {

/// Capture name and number, in the order of the pattern.
using Captures = std::vector<std::pair<std::string, std::uint64_t>>;

std::optional<std::uint64_t> capture(const Captures& captures, std::string_view name);

class NamePattern {
 public:
  /// Throws Error(kUsage) when a brace is not closed or a capture has no name.
  explicit NamePattern(std::string_view text);

  /// The captures when the whole of `name` matches. '*' matches any text, the empty one too; a capture matches a run of
  /// digits that is not part of a longer one.
  [[nodiscard]] std::optional<Captures> match(std::string_view name) const;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  enum class Kind { kLiteral, kAny, kNumber };
  struct Token {
    Kind kind;
    std::string text;
  };
  /// Matches one token that is not '*' at `at` and moves behind it.
  static bool step(const Token& token, std::string_view name, std::size_t& at, Captures& captures);

  std::string text_;
  std::vector<Token> tokens_;
};

}  // namespace cairn::shard
