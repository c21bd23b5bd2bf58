// The program's output: text on rank 0, exit codes, version.
#include "cli/output.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"
#include "base/version.hpp"
#include "bench/machine.hpp"
#include "cli/option_words.hpp"
#include "comm/mpi.hpp"
#include "hdf5/library.hpp"

namespace cairn::cli {

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : in_words_of_command(text)) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (!is_control) {
      out.push_back(c);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return base::one_line(out, std::string::npos);
}

void Output::line(std::string_view text) {
  this->text(text);
  this->text("\n");
}

void Output::text(std::string_view text) {
  // The state of the stream is checked once, in finish().
  if (enabled_) std::fwrite(text.data(), 1, text.size(), stdout);
}

void Output::summary(std::string_view text) {
  if (!is_quiet_) line(text);
}

void Output::note(std::string_view text) {
  if (!is_quiet_) line("note: " + one_line(text));
}

void Output::error(std::string_view text) {
  if (!enabled_) return;
  std::fflush(stdout);
  const std::string line = fmt::format("cairn: error: {}\n", one_line(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Output::flush() {
  if (enabled_) std::fflush(stdout);  // the state of the stream is checked once, in finish()
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

int exit_code_of(ErrorKind kind) { return kind == ErrorKind::kUsage ? kExitUsage : kExitFailed; }

std::string version_text() {
  const std::string hdf5 = hdf5::is_available() ? hdf5::version() : "none in this build";
  return fmt::format("{}\nrevision: {}\nMPI library: {}\nHDF5: {}\nbuild: {}, compiler {}", base::tool_version(),
                     bench::source_revision(), one_line(comm::mpi_library()), hdf5, CAIRN_BUILD_TYPE, __VERSION__);
}

}  // namespace cairn::cli
