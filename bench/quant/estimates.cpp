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
  const bool is_flat = codec.traits().cut == quant::Cut::kWholeBlocks;  // so that chunks are simple
  const quant::Source source = {tensor.name, is_flat ? quant::Shape{tensor.m.size(), 1} : tensor.shape};
  const std::uint64_t width = source.shape.back();
  const std::uint64_t rows = kChunk / width;
  std::vector<double> coding;
  std::vector<double> sampling;
  for (int turn = 0; turn < kTurns; ++turn) {
    quant::TensorErrors errors;
    coding.push_back(0);
    sampling.push_back(0);
    const auto for_chunks = [&](const auto& visit) {
      for (std::uint64_t begin = 0; begin < source.shape[0]; begin += rows) {
        const std::uint64_t count = std::min(rows, source.shape[0] - begin);
        const Box box = is_flat ? Box{{begin}, {count}} : Box{{begin, 0}, {count, width}};
        visit(box, quant::ConstMoments{std::span(tensor.m).subspan(begin * width, count * width),
                                       std::span(tensor.v).subspan(begin * width, count * width)});
      }
    };
    const Box all = is_flat ? Box{{0}, {tensor.m.size()}} : shard::whole(source.shape);
    quant::Statistics statistics = codec.no_statistics(source.shape, all);
    coding.back() += seconds_of([&] {
      for_chunks(
          [&](const Box& box, const quant::ConstMoments& moments) { codec.measure(source, box, moments, statistics); });
    });
    for_chunks([&](const Box& box, const quant::ConstMoments& moments) {
      quant::Encoded bytes;
      const std::vector<quant::Part> parts = codec.parts(source.shape);
      for (std::size_t p = 0; p < parts.size(); ++p) {
        bytes.emplace_back(quant::bytes_of(parts[p], codec.part_box(source.shape, p, box)));
      }
      const std::vector<std::span<std::byte>> spans(bytes.begin(), bytes.end());
      coding.back() += seconds_of([&] { codec.encode(source, box, moments, statistics, spans); });
      sampling.back() += seconds_of([&] { quant::sample_errors({codec, source, box, moments, spans}, {}, errors); });
    });
  }
  return {median(coding), median(sampling), kTurns};
}

}  // namespace cairn::quant_table
