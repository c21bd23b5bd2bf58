// Prints on rank 0 and notices when printing failed.
#include "cli/output.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cairn/error.hpp"

namespace cairn::cli {

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (!is_control) {
      out.push_back(c);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

void Output::line(std::string_view text) {
  if (!enabled_) return;
  // The state of the stream is checked once, in finish().
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

void Output::error(std::string_view text) {
  if (!enabled_) return;
  std::fflush(stdout);
  const std::string line = fmt::format("cairn: error: {}\n", one_line(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Output::finish() {
  if (!enabled_) return;
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const int error = errno;
  throw Error(ErrorKind::kIo, fmt::format("cannot write to standard output{}{}; make room where it is redirected to",
                                          error != 0 ? ": " : "", error != 0 ? std::strerror(error) : ""));
}

bool Output::is_terminal() const { return enabled_ && ::isatty(STDOUT_FILENO) == 1; }

bool Output::error_is_terminal() const { return enabled_ && ::isatty(STDERR_FILENO) == 1; }

}  // namespace cairn::cli
