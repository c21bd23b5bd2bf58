// The error table of src/quant/README.md: codings x states, as Markdown.
//
//   cairn_quant_table [--check] STATE.safetensors ...
//
// With --check the targets of q8 and q4 are checked as well: exit code 1 when one is missed. A target counts for the whole
// state; tensors one by one are shown, not checked.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>

#include "cairn/error.hpp"
#include "errors.hpp"

namespace cairn::quant_table {
namespace {

std::string percent(double share) {
  if (share < 0.1) return fmt::format("{:.3f}", 100 * share);
  if (share < 10) return fmt::format("{:.0f}", 100 * share);
  return fmt::format("{:.0e}", 100 * share);
}

void print_header(const std::string& first, const std::vector<State>& states) {
  std::string line = first;
  std::string rule = "|---|---:|";
  for (const State& state : states) {
    line += fmt::format(" {} |", state.name);
    rule += "---:|";
  }
  fmt::print("{}\n{}\n", line, rule);
}

void print_rms(const std::vector<Coding>& codings, const std::vector<State>& states, unsigned bits) {
  fmt::print("\n{} bits: update / sqrt(v), RMS, %\n\n", bits);
  print_header("| coding | bytes a value |", states);
  for (const Coding& coding : codings) {
    if (coding.bits != bits) continue;
    std::string cells;
    double bytes = 0;
    for (const State& state : states) {
      const Errors errors = measure(coding, state);
      if (bytes == 0) bytes = errors.bytes_per_value;
      cells += fmt::format(" {} / {}", percent(errors.update_rms), percent(errors.root_rms));
      if (errors.coded < 1) cells += fmt::format(" ({:.0f} % coded)", 100 * errors.coded);
      cells += " |";
    }
    fmt::print("| {}{}{} | {:.4f} |{}\n", coding.is_codec ? "**" : "", coding.name, coding.is_codec ? "**" : "", bytes,
               cells);
  }
}

/// One row per codec; `cell_of(coding, state)` gives the two errors of a cell.
template <class CellOf>
void print_codecs(const std::vector<Coding>& codings, const std::vector<State>& states, CellOf cell_of) {
  print_header("| codec | bits |", states);
  for (const Coding& coding : codings) {
    if (!coding.is_codec) continue;
    std::string cells;
    for (const State& state : states) {
      const auto [update, root] = cell_of(coding, state);
      cells += fmt::format(" {} / {} |", percent(update), percent(root));
    }
    fmt::print("| {} | {} |{}\n", coding.name, coding.bits, cells);
  }
}

void print_largest(const std::vector<Coding>& codings, const std::vector<State>& states) {
  fmt::print("\nLargest errors of a value, %: of an update (of the RMS update) / of sqrt(v)\n\n");
  print_codecs(codings, states, [](const Coding& coding, const State& state) {
    const Errors errors = measure(coding, state);
    return std::pair(errors.update_max, errors.root_max);
  });
  fmt::print("\nThe worst tensor: update / sqrt(v), RMS, %\n\n");
  print_codecs(codings, states, [](const Coding& coding, const State& state) {
    const Errors errors = worst_tensor(coding, state);
    return std::pair(errors.update_rms, errors.root_rms);
  });
}

/// The number of targets that are missed.
int check(const std::vector<State>& states) {
  int missed = 0;
  const auto at_most = [&](double found, double target, const std::string& what) {
    if (found <= target) return;
    fmt::print(stderr, "missed: {} is {:.5f}, the target is {}\n", what, found, target);
    ++missed;
  };
  for (const Coding& coding : codecs()) {
    if (coding.name != "q8" && coding.name != "q4") continue;
    const bool is_8 = coding.name == "q8";
    for (const State& state : states) {
      const Errors errors = measure(coding, state);
      const std::string where = fmt::format("{} on {}", coding.name, state.name);
      at_most(errors.update_rms, is_8 ? 0.005 : 0.07, where + ", update");
      at_most(errors.root_rms, is_8 ? 0.006 : 0.08, where + ", sqrt(v)");
      at_most(errors.bytes_per_value, is_8 ? 1.07 : 0.6, where + ", bytes a value");
    }
  }
  return missed;
}

int run(const std::vector<std::string_view>& arguments) {
  std::vector<State> states = {log_normal(1), log_normal(2), log_normal(3)};
  bool is_checked = false;
  for (const std::string_view argument : arguments) {
    if (argument == "--check") {
      is_checked = true;
    } else {
      states.push_back(read_state(argument));
    }
  }
  std::vector<Coding> codings = codecs();
  for (Coding& coding : tried()) codings.push_back(std::move(coding));
  print_rms(codings, states, 8);
  print_rms(codings, states, 4);
  print_largest(codings, states);
  return is_checked && check(states) > 0 ? 1 : 0;
}

}  // namespace
}  // namespace cairn::quant_table

int main(int argc, char** argv) {
  try {
    return cairn::quant_table::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "cairn_quant_table: {}\n", error.what());
    return 2;
  }
}
