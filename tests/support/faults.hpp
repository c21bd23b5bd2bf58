// Fault rules (os/fault.hpp) during the lifetime of an object.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string_view>
#include <thread>

#include "os/fault.hpp"

namespace cairn::test {

class Faults {
 public:
  explicit Faults(std::string_view rules) { os::set_faults(rules); }
  ~Faults() { os::set_faults(""); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

/// Waits until an operation has stopped at a rule with "pause=<go>"; at most 300 s.
inline void wait_until_paused(std::filesystem::path go) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  go += ".reached";
  while (!std::filesystem::exists(go)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "nothing stopped at " << go;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace cairn::test
