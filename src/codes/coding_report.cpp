#include "codes/coding_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/messages.hpp"
#include "planning/claim_steps.hpp"
#include "quant/boxes.hpp"

namespace cairn::codes {
namespace {

static_assert(std::is_trivially_copyable_v<quant::TensorErrors>);

/// Merges messages of (tensor, errors) in the order of ranks, so that sums are reproducible.
ErrorsByTensor merged(const comm::Messages& messages) {
  ErrorsByTensor all;
  for (const base::Bytes& message : messages) {
    comm::MessageReader in(message);
    while (!in.done()) {
      const auto tensor = static_cast<std::uint32_t>(in.u64());
      quant::TensorErrors errors;
      std::memcpy(&errors, in.raw(sizeof errors).data(), sizeof errors);
      all[tensor].merge(errors);
    }
  }
  return all;
}

void check_errors(const std::function<CodedTensor(std::uint32_t)>& tensor_of, const ErrorsByTensor& errors,
                  double limit) {
  for (const auto& [number, found] : errors) {
    const quant::ErrorSums sums = found.estimate();
    if (limit <= 0 || sums.update_rms() <= limit) continue;
    const CodedTensor tensor = tensor_of(number);
    throw Error(
        ErrorKind::kState,
        fmt::format("optimizer state of '{}': {} makes its updates wrong by {:.3g} % (RMS); {:.3g} % is allowed; "
                    "take a codec of more bits, or quant=off for section {}",
                    base::printable(tensor.source.name), tensor.codec->traits().name, 100 * sums.update_rms(),
                    100 * limit, base::printable(tensor.section)));
  }
}

CodingError error_of(const CodedTensor& tensor, const quant::TensorErrors& found) {
  const quant::ErrorSums sums = found.estimate();
  CodingError error;
  error.section = tensor.section;
  error.name = tensor.source.name;
  error.codec = tensor.codec->traits().name;
  error.elements = quant::elements_of(tensor.source.shape);
  error.elements_measured = found.elements_measured();
  error.update_rms = sums.update_rms();
  error.update_max = sums.update_max();
  error.root_rms = sums.root_rms();
  error.root_max = sums.root_max();
  error.first_max = sums.first_max();
  error.second_max = sums.second_max();
  return error;
}

/// The error as a multiple of the codec's figures. Multiples above 1 are reported, with an allowance for samples.
double excess_of(const CodingError& error) {
  const quant::Figures& figures = quant::find_codec(error.codec).traits().figures;
  return std::max(error.update_rms / figures.update_rms, error.root_rms / figures.root_rms);
}

/// The remedy for a tensor that a codec codes badly. q8 has as many bits as the codecs of other systems, or more, and
/// fewer errors.
std::string_view better_codec(const quant::Traits& traits) {
  return traits.cut == quant::Cut::kWholeBlocks ? "take a codec of more bits"
                                                : "take q8, unless another system is to read it";
}

/// The warning about `count` tensors. `worst`: the error of the worst of them.
std::string warning_of(const CodingError& worst, std::size_t count) {
  const quant::Traits& traits = quant::find_codec(worst.codec).traits();
  const quant::Figures& figures = traits.figures;
  const std::string others = count == 1 ? "" : fmt::format(" and {} more", count - 1);
  const std::string measured =
      worst.elements_measured == worst.elements
          ? ""
          : fmt::format(", estimated from {} of {} values", worst.elements_measured, worst.elements);
  return fmt::format(
      "optimizer state of '{}'{}: coded worse than the codec's figures; there {} makes the update wrong by "
      "{:.3g} % and sqrt(v) by {:.3g} % (RMS{}), its figures are {:g} % and {:g} %; {}, or "
      "quant=off for section {}",
      base::printable(worst.name), others, worst.codec, 100 * worst.update_rms, 100 * worst.root_rms, measured,
      100 * figures.update_rms, 100 * figures.root_rms, better_codec(traits), base::printable(worst.section));
}

}  // namespace

CodingReport collect_errors(comm::Communicator& communicator,
                            const std::function<CodedTensor(std::uint32_t)>& tensor_of, const ErrorsByTensor& mine,
                            const Quantisation& options) {
  const int ranks = communicator.size();
  comm::MessageWriter out(static_cast<std::size_t>(ranks));
  for (const auto& [tensor, errors] : mine) {
    if (errors.elements_measured() == 0) continue;
    out.u64(tensor);
    out.raw(&errors, sizeof errors);
    out.close(static_cast<std::size_t>(planning::home_of(tensor, ranks)));
  }
  const comm::Messages messages = communicator.all_to_all(out.take());
  const bool wants_all = measuring_of(options) == Measuring::kAll;
  ErrorsByTensor homed;
  comm::MessageWriter at_home(1);
  comm::agree(communicator, "check the error of the codes", [&] {
    homed = merged(messages);
    check_errors(tensor_of, homed, options.max_update_error);
    for (const auto& [tensor, errors] : homed) {
      if (!wants_all && !errors.exceed_figures(tensor_of(tensor).codec->traits())) continue;
      at_home.u64(tensor);
      at_home.raw(&errors, sizeof errors);
      at_home.close(0);
    }
  });
  const comm::Messages all = communicator.gather(at_home.take().front(), 0);
  CodingReport report;
  comm::agree_on_root(communicator, "report the error of the codes", 0, [&] {
    for (const auto& [number, errors] : merged(all)) {
      const CodedTensor tensor = tensor_of(number);
      CodingError error = error_of(tensor, errors);
      if (errors.exceed_figures(tensor.codec->traits())) report.beyond_figures.push_back(error);
      if (wants_all) report.errors.push_back(std::move(error));
    }
    auto& worse = report.beyond_figures;
    std::stable_sort(worse.begin(), worse.end(),
                     [](const CodingError& a, const CodingError& b) { return excess_of(a) > excess_of(b); });
    if (!worse.empty()) report.warning = warning_of(worse.front(), worse.size());
  });
  return report;
}

void add_coding_report(CodingReport coding, Report& report) {
  report.coding_errors = std::move(coding.errors);
  report.beyond_figures = std::move(coding.beyond_figures);
  if (!coding.warning.empty()) report.warnings.push_back(std::move(coding.warning));
}

}  // namespace cairn::codes
