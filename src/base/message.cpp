#include "base/message.hpp"

#include <fmt/core.h>

#include "cairn/error.hpp"

namespace cairn::base {

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return text.size() > kMost ? out + "..." : out;
}

void fail_format(std::string_view where, const std::string& what) {
  throw Error(ErrorKind::kFormat, fmt::format("{}: {}", one_line(where), what));
}

}  // namespace cairn::base
