#include "timing.hpp"

#include <algorithm>
#include <chrono>

namespace cairn::gpu_bench {
namespace {

Seconds summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2], seconds.back()};
}

}  // namespace

Seconds time_on_stream(const gpu::Stream& stream, int repeats, const std::function<void()>& work) {
  const gpu::Event begin;
  const gpu::Event end;
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    stream.record(begin);
    work();
    stream.record(end);
    const double took = gpu::runtime::elapsed_ms(begin.handle(), end.handle()) / 1e3;
    if (i >= 0) seconds.push_back(took);
  }
  return summary(std::move(seconds));
}

Seconds time_on_host(int repeats, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) seconds.push_back(took.count());
  }
  return summary(std::move(seconds));
}

}  // namespace cairn::gpu_bench
