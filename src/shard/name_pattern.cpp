// Name patterns: a pattern is split into tokens once and matched by backtracking over its '*'.
#include "shard/name_pattern.hpp"

#include <algorithm>
#include <charconv>

#include "base/units.hpp"
#include "cairn/error.hpp"

namespace cairn::shard {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<std::uint64_t> capture(const Captures& captures, std::string_view name) {
  for (const auto& [key, value] : captures) {
    if (key == name) return value;
  }
  return std::nullopt;
}

NamePattern::NamePattern(std::string_view text) : text_(text) {
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) tokens_.push_back({Kind::kLiteral, std::exchange(literal, {})});
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '*') {
      flush();
      if (tokens_.empty() || tokens_.back().kind != Kind::kAny) tokens_.push_back({Kind::kAny, ""});
    } else if (text[i] == '{') {
      const std::size_t close = text.find('}', i);
      if (close == std::string_view::npos || close == i + 1) {
        throw Error(ErrorKind::kUsage,
                    "name pattern '" + base::printable(text) + "': a '{' needs a name and a '}', as in {layer}");
      }
      flush();
      tokens_.push_back({Kind::kNumber, std::string(text.substr(i + 1, close - i - 1))});
      i = close;
    } else {
      literal += text[i];
    }
  }
  flush();
}

std::optional<Captures> NamePattern::match(std::string_view name) const {
  Captures captures;
  if (!match_from(0, name, captures)) return std::nullopt;
  return captures;
}

bool NamePattern::has_capture(std::string_view name) const {
  return std::ranges::any_of(tokens_, [&](const Token& t) { return t.kind == Kind::kNumber && t.text == name; });
}

bool NamePattern::match_from(std::size_t token, std::string_view rest, Captures& captures) const {
  if (token == tokens_.size()) return rest.empty();
  const Token& t = tokens_[token];
  if (t.kind == Kind::kLiteral)
    return rest.starts_with(t.text) && match_from(token + 1, rest.substr(t.text.size()), captures);
  if (t.kind == Kind::kNumber) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc()) return false;
    captures.emplace_back(t.text, number);
    if (match_from(token + 1, rest.substr(static_cast<std::size_t>(end - rest.data())), captures)) return true;
    captures.pop_back();
    return false;
  }
  if (token + 1 == tokens_.size()) return true;
  const bool number_next = tokens_[token + 1].kind == Kind::kNumber;
  for (std::size_t skip = 0; skip <= rest.size(); ++skip) {
    // "*{layer}" must not begin inside a number.
    if (number_next && skip > 0 && skip < rest.size() && is_digit(rest[skip - 1]) && is_digit(rest[skip])) continue;
    if (match_from(token + 1, rest.substr(skip), captures)) return true;
  }
  return false;
}

}  // namespace cairn::shard
