// The first eight bytes of a safetensors file: the length of the header, or something else altogether.
//
// Whatever is not safetensors nearly always claims an absurd header length, since its first bytes are text or a magic
// number. Such files are named for what they are, because "header too large" sends people the wrong way.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "format/safetensors.hpp"

namespace cairn::format {
namespace {

struct Lookalike {
  std::string_view magic;
  const char* what;
};

constexpr std::array<Lookalike, 8> kLookalikes = {{
    {"version https://git-lfs", "a git-lfs pointer, not the file itself; fetch it with 'git lfs pull'"},
    {"PK\x03\x04", "a zip archive, perhaps a PyTorch .bin/.pt file; convert it to safetensors first"},
    {"GGUF", "a GGUF file"},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
    {"\x93NUMPY", "a NumPy file"},
    {"<!DOCTYPE", "an HTML page, perhaps a failed download"},
    {"<html", "an HTML page, perhaps a failed download"},
    {"{\"", "a JSON file"},
}};

const char* recognise(std::string_view start) {
  for (const Lookalike& other : kLookalikes) {
    const std::size_t shown = std::min(start.size(), other.magic.size());
    if (start.substr(0, shown) == other.magic.substr(0, shown)) return other.what;
  }
  return nullptr;
}

}  // namespace

std::uint64_t header_length(std::span<const std::byte> prefix, std::uint64_t file_bytes, std::string_view path) {
  const std::string where = base::one_line(path);
  if (prefix.size() < kPrefixBytes || file_bytes < kPrefixBytes) {
    throw SafetensorsError(SafetensorsErrorKind::kHeaderTooSmall,
                           fmt::format("{}: {} bytes are too few for a safetensors file, which begins with 8 bytes of "
                                       "header length; the file is empty or cut off",
                                       where, std::min<std::uint64_t>(prefix.size(), file_bytes)));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kPrefixBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(prefix[i]);
  if (length > kMaxHeaderBytes) {
    const std::string_view start(reinterpret_cast<const char*>(prefix.data()), prefix.size());
    if (const char* what = recognise(start)) {
      throw SafetensorsError(SafetensorsErrorKind::kNotSafetensors,
                             fmt::format("{}: not a safetensors file but {}", where, what));
    }
    throw SafetensorsError(SafetensorsErrorKind::kHeaderTooLarge,
                           fmt::format("{}: header length {} is above the limit of {} bytes; the file is damaged or is "
                                       "no safetensors file",
                                       where, length, kMaxHeaderBytes));
  }
  if (length > file_bytes - kPrefixBytes) {
    throw SafetensorsError(
        SafetensorsErrorKind::kInvalidHeaderLength,
        fmt::format("{}: the header of {} bytes ends beyond the end of the file ({} bytes); the file "
                    "is cut off",
                    where, length, file_bytes));
  }
  return length;
}

}  // namespace cairn::format
