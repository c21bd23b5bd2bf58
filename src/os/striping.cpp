#include "os/striping.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

// Copied from lustre_user.h, which few build machines have.
constexpr unsigned long kSetStripe = _IOW('f', 154, long);
constexpr std::uint32_t kMagicV1 = 0x0BD10BD0;
constexpr std::uint16_t kAnyOffset = 0xFFFF;
constexpr std::uint64_t kUnitMultiple = 64ULL << 10;
constexpr std::size_t kArgumentBytes = 32;

std::int64_t number(const std::map<std::string, std::string>& hints, const char* key) {
  const auto found = hints.find(key);
  if (found == hints.end()) return 0;
  if (const auto value = base::number_in<std::int64_t>(found->second)) return *value;
  throw Error(ErrorKind::kUsage,
              fmt::format("hint {}='{}' is not a whole number", key, base::printable(found->second)));
}

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

Striping striping_of_hints(const std::map<std::string, std::string>& hints) {
  const std::int64_t factor = number(hints, "striping_factor");
  const std::int64_t unit = number(hints, "striping_unit");
  if (factor < -1 || factor >= Striping::kAllTargets) {
    throw Error(ErrorKind::kUsage,
                fmt::format("hint striping_factor={} is not a number of storage targets (-1: all)", factor));
  }
  if (unit < 0 || unit >= (1LL << 32) || static_cast<std::uint64_t>(unit) % kUnitMultiple != 0) {
    throw Error(ErrorKind::kUsage, fmt::format("hint striping_unit={} is not a multiple of 65536 below 2^32", unit));
  }
  return {factor == -1 ? Striping::kAllTargets : static_cast<std::uint32_t>(factor), static_cast<std::uint64_t>(unit)};
}

std::vector<std::byte> encode_striping(const Striping& striping) {
  std::vector<std::byte> bytes(kArgumentBytes);
  put(bytes, 0, kMagicV1);  // at 4: pattern, 0 for the default; at 8: object id, not set by callers
  put(bytes, 24, static_cast<std::uint32_t>(striping.unit_bytes));
  put(bytes, 28, static_cast<std::uint16_t>(striping.count));
  put(bytes, 30, kAnyOffset);
  return bytes;
}

File create_striped(const std::filesystem::path& path, const Striping& striping) {
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (!striping.is_set() || file_system_of(parent).type != "lustre") return File(path, OpenMode::kCreateNew);
  // The file has no objects at first; otherwise open() would fix its striping.
  File file(path, OpenMode::kCreateNewWithoutLayout);
  std::vector<std::byte> argument = encode_striping(striping);
  const int error = call_again([&] { return ::ioctl(file.descriptor(), kSetStripe, argument.data()); });
  if (error != 0) {
    ::unlink(path.c_str());
    throw_system_error(
        fmt::format("striping over {} targets in units of {} bytes of", striping.count, striping.unit_bytes), path,
        error);
  }
  return file;
}

}  // namespace cairn::os
