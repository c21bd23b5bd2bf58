// A soft limit of this process (ulimit -S) for as long as an object lives.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
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

/// Lets this process open `more` files besides those that it has open.
inline SoftLimit descriptors_left(rlim_t more) {
  rlim_t end = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    end = std::max<rlim_t>(end, std::stoul(entry.path().filename()));
  }
  return {RLIMIT_NOFILE, end + more};  // the last one was that of the loop
}

}  // namespace cairn::test
