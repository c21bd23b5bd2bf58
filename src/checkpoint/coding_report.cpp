#include "checkpoint/coding_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/claim_steps.hpp"
#include "checkpoint/mail.hpp"
#include "comm/agree.hpp"

namespace cairn::checkpoint {
namespace {

static_assert(std::is_trivially_copyable_v<quant::ErrorSums>);

/// Reads messages of (tensor, sums) in the order of ranks, so that sums come out the same every time.
ErrorsByTensor merged(const Mail& mail) {
  ErrorsByTensor all;
  for (const base::Bytes& message : mail) {
    MailReader in(message);
    while (!in.done()) {
      const auto tensor = static_cast<std::uint32_t>(in.u64());
      quant::ErrorSums sums;
      std::memcpy(&sums, in.raw(sizeof sums).data(), sizeof sums);
      all[tensor].merge(sums);
    }
  }
  return all;
}

void check_errors(const std::function<CodedTensor(std::uint32_t)>& tensor_of, const ErrorsByTensor& errors,
                  double limit) {
  for (const auto& [number, sums] : errors) {
    if (limit <= 0 || sums.update_rms() <= limit) continue;
    const CodedTensor tensor = tensor_of(number);
    throw Error(
        ErrorKind::kState,
        fmt::format("optimizer state of '{}': {} makes its updates wrong by {:.3g} % (RMS), allowed are {:.3g} %; "
                    "take a codec of more bits, or quant=off for section {}",
                    base::printable(tensor.source.name), tensor.codec->traits().name, 100 * sums.update_rms(),
                    100 * limit, base::printable(tensor.section)));
  }
}

CodingError error_of(const CodedTensor& tensor, const quant::ErrorSums& sums) {
  CodingError error;
  error.section = tensor.section;
  error.name = tensor.source.name;
  error.codec = tensor.codec->traits().name;
  error.elements = static_cast<std::uint64_t>(sums.elements());
  error.update_rms = sums.update_rms();
  error.update_max = sums.update_max();
  error.root_rms = sums.root_rms();
  error.root_max = sums.root_max();
  error.first_max = sums.first_max();
  error.second_max = sums.second_max();
  return error;
}

}  // namespace

std::vector<CodingError> collect_errors(comm::Communicator& communicator,
                                        const std::function<CodedTensor(std::uint32_t)>& tensor_of,
                                        const ErrorsByTensor& mine, double max_update_error) {
  const int ranks = communicator.size();
  MailWriter out(static_cast<std::size_t>(ranks));
  for (const auto& [tensor, sums] : mine) {
    out.u64(tensor);
    out.raw(&sums, sizeof sums);
    out.close(static_cast<std::size_t>(home_of(tensor, ranks)));
  }
  const Mail mail = communicator.all_to_all(out.take());
  ErrorsByTensor homed;
  comm::agree(communicator, "check the error of the codes", [&] {
    homed = merged(mail);
    check_errors(tensor_of, homed, max_update_error);
  });
  MailWriter at_home(1);
  for (const auto& [tensor, sums] : homed) {
    at_home.u64(tensor);
    at_home.raw(&sums, sizeof sums);
    at_home.close(0);
  }
  const Mail all = communicator.gather(at_home.take().front(), 0);
  std::vector<CodingError> errors;
  comm::agree_on_root(communicator, "report the error of the codes", 0, [&] {
    for (const auto& [number, sums] : merged(all)) errors.push_back(error_of(tensor_of(number), sums));
  });
  return errors;
}

}  // namespace cairn::checkpoint
