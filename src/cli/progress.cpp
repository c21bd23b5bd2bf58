// Draws the progress line.
#include "cli/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "base/units.hpp"
#include "checkpoint/progress.hpp"

namespace cairn::cli {
namespace {

constexpr std::chrono::milliseconds kInterval{100};
constexpr const char* kErase = "\r\x1b[K";

class Drawer {
 public:
  void operator()(std::string_view phase, std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (phase == phase_ && now - drawn_ < kInterval && done != total) return;
    phase_ = phase;
    drawn_ = now;
    std::string text = fmt::format("{}cairn: {} {}", kErase, base::printable(phase), base::format_size(done));
    if (total != 0) {
      const double percent = 100.0 * static_cast<double>(std::min(done, total)) / static_cast<double>(total);
      text += fmt::format(" of {} ({:.0f} %)", base::format_size(total), percent);
    }
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }

 private:
  std::string phase_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace

ProgressLine::ProgressLine(const Output& output) : active_(output.error_is_terminal()) {
  if (active_) checkpoint::set_progress(Drawer());
}

ProgressLine::~ProgressLine() {
  if (!active_) return;
  checkpoint::set_progress({});
  std::fputs(kErase, stderr);
  std::fflush(stderr);
}

}  // namespace cairn::cli
