// Name patterns: a pattern is split into tokens once; matching backs up to the last '*' only.
#include "shard/name_pattern.hpp"

#include <charconv>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::shard {

std::optional<std::uint64_t> capture(const Captures& captures, std::string_view name) {
  for (const auto& [key, value] : captures) {
    if (key == name) return value;
  }
  return std::nullopt;
}

NamePattern::NamePattern(std::string_view text, Braces braces) : text_(text) {
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) tokens_.push_back({Kind::kLiteral, std::exchange(literal, {})});
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '*') {
      flush();
      if (tokens_.empty() || tokens_.back().kind != Kind::kAny) tokens_.push_back({Kind::kAny, ""});
    } else if (text[i] == '{' && braces == Braces::kCapture) {
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
  std::size_t token = 0;
  std::size_t at = 0;
  // The place to continue after a mismatch: the last '*' takes one more character. Earlier stars need no second try, so
  // the work is bounded by name times pattern.
  bool has_star = false;
  std::size_t star_token = 0;
  std::size_t star_at = 0;
  std::size_t star_captures = 0;
  for (;;) {
    if (token == tokens_.size() && (at == name.size() || (has_star && star_token == token))) return captures;
    if (token < tokens_.size() && tokens_[token].kind == Kind::kAny) {
      has_star = true;
      star_token = ++token;
      star_at = at;
      star_captures = captures.size();
      continue;
    }
    if (token < tokens_.size() && step(tokens_[token], name, at, captures)) {
      ++token;
      continue;
    }
    if (!has_star || star_at == name.size()) return std::nullopt;
    token = star_token;
    at = ++star_at;
    captures.resize(star_captures);
  }
}

bool NamePattern::step(const Token& token, std::string_view name, std::size_t& at, Captures& captures) {
  const std::string_view rest = name.substr(at);
  if (token.kind == Kind::kLiteral) {
    if (!rest.starts_with(token.text)) return false;
    at += token.text.size();
    return true;
  }
  if (at > 0 && base::is_digit(name[at - 1])) return false;  // "*{layer}" must not begin inside a number
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc()) return false;
  captures.emplace_back(token.text, number);
  at += static_cast<std::size_t>(end - rest.data());
  return true;
}

namespace {

std::vector<NamePattern> patterns_of(const std::vector<std::string>& texts) {
  std::vector<NamePattern> patterns;
  for (const std::string& text : texts) patterns.emplace_back(text, NamePattern::Braces::kLiteral);
  return patterns;
}

bool matches_any(const std::vector<NamePattern>& patterns, std::string_view text) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(),
                                         [&](const NamePattern& pattern) { return pattern.match(text).has_value(); });
}

}  // namespace

Selector::Selector(const Selection& selection)
    : sections_(patterns_of(selection.sections)), names_(patterns_of(selection.names)) {}

bool Selector::selects(std::string_view section, std::string_view name) const {
  return matches_any(sections_, section) && matches_any(names_, name);
}

}  // namespace cairn::shard
