#include "base/sort_texts.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "base/checked.hpp"

namespace cairn::base {
namespace {

constexpr std::size_t kKeyBytes = 8;

/// `key`: eight bytes of string number `text`, as a number that sorts like them. `left`: number of bytes from the first
/// of the eight to the end of the string (kKeyBytes + 1: more than eight).
struct Item {
  std::uint64_t key = 0;
  std::uint32_t left = 0;
  std::uint32_t text = 0;

  [[nodiscard]] bool is_alike(const Item& other) const { return key == other.key && left == other.left; }
  friend bool operator<(const Item& a, const Item& b) {
    return std::tie(a.key, a.left, a.text) < std::tie(b.key, b.left, b.text);
  }
};

void set_key(Item& item, std::string_view text, std::size_t depth) {
  const std::string_view rest = text.substr(depth);
  item.left = static_cast<std::uint32_t>(std::min(rest.size(), kKeyBytes + 1));
  item.key = 0;
  if (rest.size() >= kKeyBytes && std::endian::native == std::endian::little) {
    std::memcpy(&item.key, rest.data(), kKeyBytes);
    item.key = __builtin_bswap64(item.key);
    return;
  }
  for (std::size_t i = 0; i < kKeyBytes; ++i) {
    item.key = item.key << 8 | (i < rest.size() ? static_cast<unsigned char>(rest[i]) : 0U);
  }
}

/// Sorts items whose strings agree up to `depth`. Recurses only into parts of the items, not for each eight bytes of a
/// common prefix, which can be long.
void sort_items(std::span<Item> items, std::span<const std::string_view> texts, std::size_t depth) {
  for (;; depth += kKeyBytes) {
    for (Item& item : items) set_key(item, texts[item.text], depth);
    if (!std::is_sorted(items.begin(), items.end())) std::sort(items.begin(), items.end());
    if (items.size() < 2 || !items.front().is_alike(items.back())) break;
    if (items.front().left <= kKeyBytes) return;
  }
  for (std::size_t first = 0, last = 0; first < items.size(); first = last) {
    while (last < items.size() && items[last].is_alike(items[first])) ++last;
    if (last - first > 1 && items[first].left > kKeyBytes) {
      sort_items(items.subspan(first, last - first), texts, depth + kKeyBytes);
    }
  }
}

}  // namespace

std::vector<std::uint32_t> order_of_texts(std::span<const std::string_view> texts) {
  std::vector<Item> items(narrow<std::uint32_t>(texts.size(), "number of texts"));
  for (std::uint32_t i = 0; i < items.size(); ++i) items[i].text = i;
  sort_items(items, texts, 0);
  std::vector<std::uint32_t> order;
  order.reserve(items.size());
  for (const Item& item : items) order.push_back(item.text);
  return order;
}

std::optional<EqualTexts> first_equal_texts(std::span<const std::string_view> texts) {
  const std::vector<std::uint32_t> order = order_of_texts(texts);
  std::optional<EqualTexts> found;
  for (std::size_t first = 0, next = 1; next < order.size(); ++next) {
    if (texts[order[first]] != texts[order[next]]) {
      first = next;
    } else if (next == first + 1 && (!found || order[next] < found->second)) {
      found = EqualTexts{order[first], order[next]};
    }
  }
  return found;
}

}  // namespace cairn::base
