// Names with equal hashes in the standard library's hash tables, as an attacker could choose them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"

namespace cairn::test {

/// `count` different UTF-8 strings with the same std::hash.
///
/// libstdc++'s hash is MurmurHash64A, whose state takes eight bytes at a time as h = (h ^ f(word)) * m. If f of two
/// words differs only in the highest bit, so do the states, and the same difference in the next word cancels it: two
/// pairs of words for each 16 bytes of a name, whatever comes before.
inline std::vector<std::string> colliding_names(std::size_t count) {
  constexpr std::uint64_t kM = 0xc6a4a7935bd1e995ULL;
  const auto inverse = [] {
    std::uint64_t x = kM;  // Newton's iteration doubles the number of correct bits
    for (int i = 0; i < 6; ++i) x *= 2 - kM * x;
    return x;
  }();
  const auto f = [](std::uint64_t word) {
    word *= kM;
    return (word ^ word >> 47) * kM;
  };
  const auto f_back = [&](std::uint64_t value) {
    value *= inverse;
    return (value ^ value >> 47) * inverse;
  };
  const auto text_of = [](std::uint64_t word) {
    std::string text(sizeof word, ' ');
    std::memcpy(text.data(), &word, sizeof word);
    return text;
  };
  const auto is_plain = [](const std::string& text) {
    const auto is_odd = [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f || c == '"' || c == '\\' || c == '/'; };
    return base::is_utf8(text) && std::ranges::none_of(text, is_odd);
  };
  std::mt19937_64 random(1);
  const auto next_pair = [&] {
    for (;;) {
      std::string text;  // characters of one to three bytes
      while (text.size() < 8) {
        const auto tail = [&] { return static_cast<char>(0x80 | random() % 0x40); };
        const std::uint64_t kind = random() % 3;
        if (kind == 0) {
          text += static_cast<char>(0x20 + random() % 0x5f);
        } else if (kind == 1) {
          text += {static_cast<char>(0xc2 + random() % 0x1e), tail()};
        } else {
          text += {static_cast<char>(0xe1 + random() % 0xc), tail(), tail()};
        }
      }
      if (text.size() != 8 || !is_plain(text)) continue;
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), sizeof word);
      std::string other = text_of(f_back(f(word) ^ std::uint64_t{1} << 63));
      if (is_plain(other)) return std::pair(text, other);
    }
  };
  std::vector<std::string> names = {""};
  while (names.size() < count) {
    const auto [a, a_other] = next_pair();
    const auto [b, b_other] = next_pair();
    const std::size_t before = names.size();
    for (std::size_t i = 0; i < before; ++i) {
      names.push_back(names[i] + a_other + b_other);
      names[i] += a + b;
    }
  }
  names.resize(count);
  for (const std::string& name : names) {
    const std::hash<std::string_view> hash;
    if (hash(name) != hash(names.front()))
      throw std::logic_error("the standard library has another hash: these names do not collide");
  }
  return names;
}

}  // namespace cairn::test
