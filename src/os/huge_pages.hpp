// Which memory of a process may lie in huge pages, by what the kernel's settings say. They are read, never changed.
//
// O_DIRECT hands a disk a list of pieces of memory. A huge page is one piece where small pages are up to 512, and a disk
// takes only so many pieces a request.
#pragma once

#include <filesystem>

namespace cairn::os {

struct HugePages {
  bool private_memory = false;  ///< anonymous memory with MADV_HUGEPAGE gets them
  bool shared_memory = false;   ///< so does a memory file (memfd) with MADV_HUGEPAGE

  friend bool operator==(const HugePages&, const HugePages&) = default;
};

/// Settings that are not there (a kernel without huge pages, /sys hidden) say no.
HugePages huge_pages(const std::filesystem::path& settings = "/sys/kernel/mm/transparent_hugepage");

}  // namespace cairn::os
