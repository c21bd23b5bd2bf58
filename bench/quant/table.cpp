// The error tables of src/quant/README.md as Markdown, with a row per codec and a column per state.
//
//   cairn_quant_table [--check] STATE.safetensors ...
//   cairn_quant_table --time                            time that a save's sample takes
//
// --check also checks the figures of the codecs for each tensor; the exit code is 1 if one is missed. Hard states of q8
// and q4 (v around 1e-20, dead units) are checked against wider limits, above their figures in src/quant/README.md.
// Paddle's codecs have figures for log-normal v of sigma 1 alone; all other states may be beyond them.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>

#include "cairn/error.hpp"
#include "errors.hpp"
#include "estimates.hpp"
#include "shard/box_math.hpp"

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
  print_header("| codec | bytes a value |", states);
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
    fmt::print("| {} | {:.4f} |{}\n", coding.name, bytes, cells);
  }
}

/// One row per codec; `cell_of(coding, state)` gives the two errors of a cell.
template <class CellOf>
void print_codecs(const std::vector<Coding>& codings, const std::vector<State>& states, CellOf cell_of) {
  print_header("| codec | bits |", states);
  for (const Coding& coding : codings) {
    std::string cells;
    for (const State& state : states) {
      const auto [update, root] = cell_of(coding, state);
      cells += fmt::format(" {} / {} |", percent(update), percent(root));
    }
    fmt::print("| {} | {} |{}\n", coding.name, coding.bits, cells);
  }
}

void print_worst(const std::vector<Coding>& codings, const std::vector<State>& states) {
  fmt::print("\nThe worst tensor: update / sqrt(v), RMS, %\n\n");
  print_codecs(codings, states, [](const Coding& coding, const State& state) {
    const Errors errors = worst_tensor(coding, state);
    return std::pair(errors.update_rms, errors.root_rms);
  });
}

void print_largest(const std::vector<Coding>& codings, const std::vector<State>& states) {
  fmt::print("\nLargest errors of a value, %: of an update (of the RMS update) / of sqrt(v)\n\n");
  print_codecs(codings, states, [](const Coding& coding, const State& state) {
    const Errors errors = measure(coding, state);
    return std::pair(errors.update_max, errors.root_max);
  });
}

bool is_own(const quant::Codec& codec) { return codec.traits().cut == quant::Cut::kWholeBlocks; }

/// The errors of each tensor: exact, and as a save estimates them from a sample. `paddle`: states for Paddle's codecs.
void print_estimates(const std::vector<State>& hard, const std::vector<State>& paddle) {
  fmt::print("\nWhat a sample of the blocks says: update / sqrt(v), RMS, %\n\n");
  fmt::print(
      "| codec | state | tensor | all blocks | sample | values in it | a save names it "
      "|\n|---|---|---|---:|---:|---:|---|\n");
  for (const quant::Codec* codec : quant::all_codecs()) {
    for (const State& state : is_own(*codec) ? hard : paddle) {
      for (const Tensor& tensor : state.tensors) {
        if (!codec->left_alone(tensor.shape).empty()) continue;
        const Estimate found = estimate(*codec, tensor);
        fmt::print("| {} | {} | {} | {} / {} | {} / {} | {:.1f} % | {} |\n", codec->traits().name, state.name,
                   tensor.name, percent(found.exact.update_rms()), percent(found.exact.root_rms()),
                   percent(found.sample.update_rms()), percent(found.sample.root_rms()), 100 * found.share,
                   found.is_named ? "yes" : "no");
      }
    }
  }
}

/// The time that a save's sample takes.
void print_times(const State& state) {
  for (const quant::Codec* codec : quant::all_codecs()) {
    if (!codec->left_alone(state.tensors.at(0).shape).empty()) continue;
    const Times times = time_sample(*codec, state.tensors.at(0));
    fmt::print("{}: coding {} {} takes {:.2f} ms, its sample {:.2f} % more (medians of {} turns)\n",
               codec->traits().name, state.name, shard::shape_text(state.tensors[0].shape), 1e3 * times.coding_seconds,
               100 * times.sample_seconds / times.coding_seconds, times.turns);
  }
}

/// Returns the number of missed targets. `for_paddle`: states for which the figures of Paddle's codecs are stated.
int check(const std::vector<State>& usual, const std::vector<State>& hard, const std::vector<State>& for_paddle) {
  int missed = 0;
  const auto at_most = [&](double found, double target, const std::string& what) {
    if (found <= target) return;
    fmt::print(stderr, "{} is {:.5f}, the target is {}\n", what, found, target);
    ++missed;
  };
  for (const Coding& coding : codecs()) {
    const quant::Codec& codec = quant::find_codec(coding.name);
    const quant::Figures& figures = codec.traits().figures;
    for (const State& state : is_own(codec) ? usual : for_paddle) {
      const Errors worst = worst_tensor(coding, state);
      const std::string where = fmt::format("{} on the worst tensor of {}", coding.name, state.name);
      at_most(worst.update_rms, figures.update_rms, where + ", update");
      at_most(worst.root_rms, figures.root_rms, where + ", sqrt(v)");
      if (is_own(codec)) {
        at_most(measure(coding, state).bytes_per_value, coding.name == "q8" ? 1.07 : 0.6, where + ", bytes a value");
      }
      for (const Tensor& tensor : state.tensors) {
        at_most(estimate(codec, tensor).is_named ? 1 : 0, 0, where + ", named");
      }
    }
    for (const State& state : is_own(codec) ? hard : usual) {
      const std::string where = fmt::format("{} on the worst tensor of {}", coding.name, state.name);
      if (is_own(codec)) {  // limits above src/quant/README.md's figures for dead units, the worst of the hard states
        const Errors worst = worst_tensor(coding, state);
        at_most(worst.update_rms, coding.name == "q8" ? 0.02 : 0.2, where + ", update");
        at_most(worst.root_rms, coding.name == "q8" ? 0.04 : 1.0, where + ", sqrt(v)");
      }
      for (const Tensor& tensor : state.tensors) {
        if (!codec.left_alone(tensor.shape).empty()) continue;
        const Estimate found = estimate(codec, tensor);
        const double excess =
            std::max(found.exact.update_rms() / figures.update_rms, found.exact.root_rms() / figures.root_rms);
        at_most(excess > 1.3 && !found.is_named ? 1 : 0, 0, where + ", not named");
      }
    }
  }
  return missed;
}

int run(const std::vector<std::string_view>& arguments) {
  std::vector<State> usual = {log_normal(1), log_normal(2), log_normal(3)};
  const std::vector<State> hard = {log_normal(1, 1e-20), log_normal(2, 1e-20), log_normal(3, 1e-20), dead_units()};
  bool is_checked = false;
  bool is_timed = false;
  for (const std::string_view argument : arguments) {
    if (argument == "--check") {
      is_checked = true;
    } else if (argument == "--time") {
      is_timed = true;
    } else {
      usual.push_back(read_state(argument));
    }
  }
  if (is_timed) {
    print_times(usual[1]);
    print_times(log_normal(2, 1, {2048, 1024}));
    print_times(hard[3]);
    return 0;
  }
  const std::vector<Coding> codings = codecs();
  print_rms(codings, usual, 8);
  print_rms(codings, usual, 4);
  print_worst(codings, usual);
  print_largest(codings, usual);
  print_worst(codings, hard);
  print_largest(codings, hard);
  print_estimates(hard, usual);
  return is_checked && check(usual, hard, {usual[0], log_normal(1, 1, {1U << 17, 4})}) > 0 ? 1 : 0;
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
