// Fault rules (os/fault.hpp) during the lifetime of an object.
#pragma once

#include <string_view>

#include "os/fault.hpp"

namespace cairn::test {

class Faults {
 public:
  explicit Faults(std::string_view rules) { os::set_faults(rules); }
  ~Faults() { os::set_faults(""); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

}  // namespace cairn::test
