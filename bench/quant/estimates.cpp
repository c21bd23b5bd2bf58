#include "estimates.hpp"

#include <algorithm>
#include <chrono>

#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant_table {
namespace {

constexpr int kTurns = 101;

double median(std::vector<double>& seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + kTurns / 2, seconds.end());
  return seconds[kTurns / 2];
}

template <class Action>
double seconds_of(Action action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Estimate estimate(const quant::Codec& codec, const Tensor& tensor) {
  const quant::Source source = {tensor.name, tensor.shape};
  const Box box = shard::whole(codec.view(tensor.shape));
  quant::Encoded parts = encode_whole(codec, source, {tensor.m, tensor.v});
  const std::vector<std::span<std::byte>> spans(parts.begin(), parts.end());
  const quant::CodedBox coded = {codec, source, box, {tensor.m, tensor.v}, spans};
  quant::TensorErrors exact;
  quant::TensorErrors sample;
  quant::add_errors(coded, {}, exact);
  quant::sample_errors(coded, {}, sample);
  const double share = static_cast<double>(sample.elements_measured()) / static_cast<double>(tensor.m.size());
  return {exact.estimate(), sample.estimate(), share, sample.exceed_figures(codec.traits())};
}

Times time_sample(const quant::Codec& codec, const Tensor& tensor) {
  constexpr std::uint64_t kChunk = 1 << 16;
  const quant::Source source = {tensor.name, {tensor.m.size(), 1}};  // flattened, so that chunks are simple
  std::vector<double> coding;
  std::vector<double> sampling;
  for (int turn = 0; turn < kTurns; ++turn) {
    quant::TensorErrors errors;
    coding.push_back(0);
    sampling.push_back(0);
    for (std::uint64_t begin = 0; begin < tensor.m.size(); begin += kChunk) {
      const std::uint64_t count = std::min<std::uint64_t>(kChunk, tensor.m.size() - begin);
      const Box box{{begin}, {count}};
      const quant::ConstMoments moments = {std::span(tensor.m).subspan(begin, count),
                                           std::span(tensor.v).subspan(begin, count)};
      base::Bytes bytes(quant::bytes_of(codec.parts(source.shape)[0], codec.part_box(source.shape, 0, box)));
      const std::vector<std::span<std::byte>> spans = {bytes};
      coding.back() += seconds_of([&] { codec.encode(source, box, moments, {}, spans); });
      sampling.back() += seconds_of([&] { quant::sample_errors({codec, source, box, moments, spans}, {}, errors); });
    }
  }
  return {median(coding), median(sampling), kTurns};
}

}  // namespace cairn::quant_table
