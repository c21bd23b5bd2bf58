// Memory growth of this process, for tests of memory limits.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace cairn::test {

/// The value of a line of /proc/self/status, in bytes.
inline std::uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  ADD_FAILURE() << "no " << key;
  return 0;
}

/// Shadow bytes that a sanitizer keeps for every byte of memory in use.
#if defined(CAIRN_THREAD_SANITIZER)
inline constexpr std::uint64_t kShadowBytes = 4;
#else
inline constexpr std::uint64_t kShadowBytes = 0;
#endif

/// The largest growth of the process while `work` runs, without its shadow memory.
template <class Work>
std::uint64_t growth_bytes(Work work) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts over
  const std::uint64_t before = status_bytes("VmRSS");
  EXPECT_LT(status_bytes("VmHWM"), before + (8 << 20)) << "the peak was not reset";
  work();
  return (status_bytes("VmHWM") - before) / (1 + kShadowBytes);
}

}  // namespace cairn::test
