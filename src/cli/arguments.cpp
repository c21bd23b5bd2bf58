// Checks option values before any work begins.
#include "cli/arguments.hpp"

#include <fmt/core.h>

#include <bit>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "os/file.hpp"
#include "shard/layout.hpp"

namespace cairn::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;
constexpr std::uint64_t kMaxAlignBytes = 1ULL << 30;

}  // namespace

std::map<std::string, std::string> parse_hints(const std::vector<std::string>& words) {
  std::map<std::string, std::string> hints;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(ErrorKind::kUsage, fmt::format("--hint '{}' is not key=value", base::printable(word)));
    }
    if (!hints.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      throw Error(ErrorKind::kUsage, fmt::format("--hint {} is given twice", base::printable(word.substr(0, equals))));
    }
  }
  return hints;
}

void check_alignment(std::uint64_t bytes) {
  if (bytes >= 8 && bytes <= kMaxAlignBytes && std::has_single_bit(bytes)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("--align is {} bytes; give a power of two from 8 to {}", bytes, kMaxAlignBytes));
}

void check_positive(std::uint64_t bytes, std::string_view option) {
  if (bytes == 0) throw Error(ErrorKind::kUsage, fmt::format("{} is 0; give a size of at least one byte", option));
}

std::string text_or_file(comm::Communicator& communicator, const std::string& argument) {
  if (!argument.starts_with('@')) return argument;
  const std::filesystem::path path = argument.substr(1);
  std::string text;
  comm::agree_on_root(communicator, "read argument", 0, [&] { text = os::read_text(path, kMaxTextBytes); });
  communicator.share(text, 0);
  return text;
}

std::string layout_text(comm::Communicator& communicator, const std::string& argument) {
  return shard::Layout::from_text(text_or_file(communicator, argument)).text();
}

}  // namespace cairn::cli
