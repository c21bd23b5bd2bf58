// Name patterns of layout files: literal characters, '*' for any characters, and captures such as {layer} or {expert}
// for a number. Also patterns of a Selection, where braces are literal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/selection.hpp"

namespace cairn::shard {

/// Capture name and number, in the order of the pattern.
using Captures = std::vector<std::pair<std::string, std::uint64_t>>;

std::optional<std::uint64_t> capture(const Captures& captures, std::string_view name);

class NamePattern {
 public:
  enum class Braces { kCapture, kLiteral };
  /// Throws Error(kUsage) if a capture's brace is not closed or a capture has no name.
  explicit NamePattern(std::string_view text, Braces braces = Braces::kCapture);

  /// The captures if the whole of `name` matches. '*' matches any characters, or none; a capture matches a run of
  /// digits that is not part of a longer run.
  [[nodiscard]] std::optional<Captures> match(std::string_view name) const;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  enum class Kind { kLiteral, kAny, kNumber };
  struct Token {
    Kind kind;
    std::string text;
  };
  /// Matches one token other than '*' at `at`, and moves `at` past the match.
  static bool step(const Token& token, std::string_view name, std::size_t& at, Captures& captures);

  std::string text_;
  std::vector<Token> tokens_;
};

/// A Selection prepared for queries. Rank-local; does not refer to the Selection.
class Selector {
 public:
  explicit Selector(const Selection& selection);

  [[nodiscard]] bool selects(std::string_view section, std::string_view name) const;

 private:
  std::vector<NamePattern> sections_;
  std::vector<NamePattern> names_;
};

// Finds a known name inside a longer dotted one, such as a parameter in "optim.state.<parameter>.exp_avg".

/// The first part of `name`, whole words between dots, that `is_known` accepts: fewest words dropped in front, then
/// fewest behind. Empty if there is none, and for names of more than 64 words or 1,024 bytes, which no framework
/// writes: the time of the search grows with the cube of the number of words.
template <class Predicate>
std::string_view known_part_of(std::string_view name, const Predicate& is_known) {
  constexpr std::size_t kMostBytes = 1024;
  constexpr std::ptrdiff_t kMostDots = 63;
  if (is_known(name)) return name;
  if (name.size() > kMostBytes || std::ranges::count(name, '.') > kMostDots) return {};
  for (std::size_t begin = 0;;) {
    for (std::string_view rest = name.substr(begin); !rest.empty();) {
      if (is_known(rest)) return rest;
      const std::size_t dot = rest.rfind('.');
      rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(0, dot);
    }
    const std::size_t dot = name.find('.', begin);
    if (dot == std::string_view::npos) return {};
    begin = dot + 1;
  }
}

}  // namespace cairn::shard
