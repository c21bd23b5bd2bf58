// The program's output: text on rank 0, exit codes, JSON, version.
#include "cli/output.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "base/version.hpp"
#include "bench/machine.hpp"
#include "comm/mpi.hpp"
#include "hdf5/library.hpp"

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

base::Json json_document(std::string_view command) {
  return {{"cairn_json", kJsonVersion}, {"command", std::string(command)}};
}

namespace {

constexpr base::JsonFormat kJsonFormat = {.indent = 2, .is_lenient = true};

std::string text_of(const base::Json& value) { return base::visible_json(value.dump(kJsonFormat)); }

}  // namespace

void print_json(Output& output, const base::Json& document) { output.line(text_of(document)); }

void print_json(Output& output, const base::Json& before, const JsonList& list, const base::Json& after) {
  if (before.empty() || after.empty()) throw base::internal_error("a list without keys on both sides");
  std::string text = text_of(before);
  text.resize(text.size() - std::string_view("\n}").size());
  output.text(text + ",\n  " + base::json_quoted(list.key, kJsonFormat) + ": [");
  bool is_first = true;
  list.walk([&](const base::Json& value) {
    text = std::exchange(is_first, false) ? "\n    " : ",\n    ";
    for (const char c : text_of(value)) {  // newlines in strings are escaped
      text += c;
      if (c == '\n') text += "    ";
    }
    output.text(text);
  });
  output.text(is_first ? "]," : "\n  ],");
  output.line(text_of(after).substr(std::string_view("{").size()));
}

base::Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return value;
}

std::string version_text() {
  const std::string hdf5 = hdf5::is_available() ? hdf5::version() : "none in this build";
  return fmt::format("{}\nrevision: {}\nMPI library: {}\nHDF5: {}\nbuild: {}, compiler {}", base::tool_version(),
                     bench::source_revision(), one_line(comm::mpi_library()), hdf5, CAIRN_BUILD_TYPE, __VERSION__);
}

}  // namespace cairn::cli
