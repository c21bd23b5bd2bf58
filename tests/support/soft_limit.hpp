// A soft limit of this process (ulimit -S) during the lifetime of an object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>
#include <string>

namespace cairn::test {

class SoftLimit {
 public:
  using Resource = decltype(RLIMIT_NOFILE);

  SoftLimit(Resource resource, rlim_t value) : resource_(resource) {
    EXPECT_EQ(::getrlimit(resource_, &before_), 0);
    rlimit now = before_;
    now.rlim_cur = value;
    EXPECT_EQ(::setrlimit(resource_, &now), 0);
  }
  ~SoftLimit() { ::setrlimit(resource_, &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;

 private:
  Resource resource_;
  rlimit before_{};
};

/// Lets this process open `more` further files. The numbers of open files may have gaps.
inline SoftLimit descriptors_left(rlim_t more) {
  std::set<rlim_t> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    open.insert(std::stoul(entry.path().filename()));
  }
  std::erase_if(open, [](rlim_t fd) { return ::fcntl(static_cast<int>(fd), F_GETFD) < 0; });  // the loop's
  rlim_t end = 0;
  for (rlim_t free = 0; free < more; ++end) free += open.contains(end) ? 0 : 1;
  return {RLIMIT_NOFILE, end};
}

}  // namespace cairn::test
