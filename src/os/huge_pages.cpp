#include "os/huge_pages.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/limits.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE: older headers lack it

/// The word in brackets in a file like "always [madvise] never"; empty when there is none.
std::string chosen_word(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto begin = line.find('[');
  const auto end = line.find(']', begin);
  return end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

/// Since Linux 6.8 (6.12 for shared memory) pages of 2 MiB have their own settings file, usually with "inherit".
std::string setting(const std::filesystem::path& settings, std::string_view name) {
  const std::string of_size = chosen_word(settings / "hugepages-2048kB" / name);
  return of_size.empty() || of_size == "inherit" ? chosen_word(settings / name) : of_size;
}

bool try_a_huge_page() {
  const int descriptor = ::memfd_create("cairn", MFD_CLOEXEC);
  if (descriptor < 0) return false;
  std::uint64_t got = 0;
  if (refuse_size(kHugePageBytes) == 0 && ::ftruncate(descriptor, static_cast<off_t>(kHugePageBytes)) == 0) {
    if (std::byte* const memory = map_memory_file(descriptor, kHugePageBytes); memory != nullptr) {
      got = make_pages_huge(descriptor, 0, {memory, kHugePageBytes});
      ::munmap(memory, kHugePageBytes);
    }
  }
  ::close(descriptor);
  return got != 0;
}

}  // namespace

HugePages huge_pages(const std::filesystem::path& settings) {
  const std::string of_private = setting(settings, "enabled");
  const std::string of_shared = setting(settings, "shmem_enabled");
  return {of_private == "always" || of_private == "madvise",
          of_shared == "always" || of_shared == "within_size" || of_shared == "advise" || of_shared == "force"};
}

std::byte* map_memory_file(int descriptor, std::uint64_t bytes) {
  const std::uint64_t reserved = bytes + kHugePageBytes;
  void* const anywhere = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (anywhere == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(anywhere);
  const auto address = reinterpret_cast<std::uintptr_t>(anywhere);
  const std::uint64_t before = base::round_up(address, kHugePageBytes) - address;
  void* const mapped = ::mmap(begin + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::munmap(anywhere, reserved);
    errno = error;
    return nullptr;
  }
  const std::uint64_t end = before + base::round_up(bytes, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  if (before != 0) ::munmap(begin, before);
  if (end != reserved) ::munmap(begin + end, reserved - end);
  return static_cast<std::byte*>(mapped);
}

std::uint64_t make_pages_huge(int descriptor, std::uint64_t offset, std::span<std::byte> memory) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
  constexpr off_t kAnyPage = 1;
  std::uint64_t done = 0;
  for (std::uint64_t at = 0; at + kHugePageBytes <= memory.size(); at += kHugePageBytes) {
    // MADV_COLLAPSE refuses a unit without any page; if the unit has one, the rest is filled in.
    const auto page = static_cast<off_t>(offset + at);
    if (call_again([&] { return ::fallocate(descriptor, 0, page, kAnyPage); }) != 0) break;
    if (::madvise(memory.data() + at, kHugePageBytes, kCollapse) == 0) {
      done += kHugePageBytes;
    } else if (errno != EAGAIN) {
      break;  // unsupported, not allowed, or no free huge page: the next unit would also fail
    }
  }
  return done;
}

bool can_make_pages_huge() {
  static const bool answer = try_a_huge_page();
  return answer;
}

PopulatedMemory::PopulatedMemory(std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t room = base::round_up(bytes, kHugePageBytes);
  fault_memory("memory.populate");
  void* const mapping = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto refuse = [&](int why) {
    throw Error(ErrorKind::kIo,
                fmt::format("{} of memory are not to be had: {}", base::format_size(bytes), std::strerror(why)),
                {why, {}, {}});
  };
  if (mapping == MAP_FAILED) refuse(errno);
  data_ = static_cast<std::byte*>(mapping);
  size_ = room;
  ::madvise(data_, room, MADV_HUGEPAGE);  // advice: the kernel may refuse it
  // Children of fork() do not need this memory. If they had it, each page written while a child lives would be copied.
  ::madvise(data_, room, MADV_DONTFORK);
  if (::madvise(data_, room, kPopulateWrite) == 0) return;
  const int why = errno;
  if (why != EINVAL) {
    ::munmap(data_, room);
    refuse(why);
  }
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));  // for Linux before 5.14
  for (std::uint64_t at = 0; at < room; at += page_bytes) *const_cast<volatile std::byte*>(data_ + at) = std::byte{0};
}

PopulatedMemory::~PopulatedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

PopulatedMemory::PopulatedMemory(PopulatedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PopulatedMemory& PopulatedMemory::operator=(PopulatedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace cairn::os
