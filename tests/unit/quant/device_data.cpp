#include "device_data.hpp"

#include <algorithm>

#include "quant/boxes.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

constexpr std::uint64_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xC3;

template <class Action>
Answer answer_of(Action action) {
  Answer answer;
  try {
    action(answer);
  } catch (const Error& error) {
    answer.kind = error.kind();
    answer.error = error.what();
  }
  return answer;
}

}  // namespace

PartsOnDevice::PartsOnDevice(const Codec& codec, const Source& source, const Box& box) {
  const auto parts = codec.parts(source.shape);
  const gpu::Stream stream;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sizes_.push_back(bytes_of(parts[i], codec.part_box(source.shape, i, box)));
    buffers_.emplace_back(sizes_.back() + 2 * kGuardBytes);
    stream.fill(buffers_.back().span(), kGuard);
  }
  stream.synchronise();
}

std::vector<gpu::DeviceSpan> PartsOnDevice::spans() const {
  std::vector<gpu::DeviceSpan> spans;
  for (std::size_t i = 0; i < sizes_.size(); ++i) spans.push_back(buffers_[i].span().subspan(kGuardBytes, sizes_[i]));
  return spans;
}

Encoded PartsOnDevice::download(const gpu::Stream& stream) const {
  Encoded encoded;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    base::Bytes all(buffers_[i].size());
    stream.copy(all, buffers_[i].span());
    stream.synchronise();
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kGuardBytes);
    const auto end = begin + static_cast<std::ptrdiff_t>(sizes_[i]);
    const auto is_guard = [](std::byte byte) { return byte == std::byte{kGuard}; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, is_guard)) << "bytes before part " << i << " were written";
    EXPECT_TRUE(std::all_of(end, all.end(), is_guard)) << "bytes after part " << i << " were written";
    encoded.emplace_back(begin, end);
  }
  return encoded;
}

Answer encoded_on_host(const Job& job, const State& state, const Statistics& statistics) {
  return answer_of(
      [&](Answer& answer) { answer.parts = encode_box(job.codec, job.source, job.box, state.view(), statistics); });
}

Answer encoded_on_device(const Job& job, const State& state, const Statistics& statistics) {
  return answer_of([&](Answer& answer) {
    const DeviceCodec& codec = device_codec_of(job.codec);
    const gpu::Stream stream;
    const DeviceState moments(state, job.shift, stream);
    const PartsOnDevice parts(job.codec, job.source, job.box);
    Verdict verdict;
    codec.encode(job.source, job.box, moments.view(), statistics, parts.spans(), verdict, stream);
    stream.synchronise();
    answer.parts = parts.download(stream);
    codec.raise_encode(job.source, job.box, moments.view(), verdict, stream);
  });
}

testing::AssertionResult same_answer(const Codec& codec, const Source& source, const Answer& found,
                                     const Answer& expected) {
  if (found.kind != expected.kind || found.error != expected.error) {
    return testing::AssertionFailure() << "on the device: '" << found.error << "', on the host: '" << expected.error
                                       << "'";
  }
  if (found.kind) return testing::AssertionSuccess();
  const auto parts = codec.parts(source.shape);
  if (found.parts.size() != expected.parts.size()) return testing::AssertionFailure() << "another number of parts";
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    const auto same = same_part(parts.at(i), found.parts[i], {parts[i].dtype, parts[i].shape, expected.parts[i]});
    if (!same) return testing::AssertionFailure() << "part " << i << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

void expect_same_coding(const Job& job, const State& state) {
  Statistics statistics = job.codec.no_statistics(job.source.shape, job.box);
  job.codec.measure(job.source, job.box, state.view(), statistics);
  const Answer encoded = encoded_on_host(job, state, statistics);
  EXPECT_TRUE(same_answer(job.codec, job.source, encoded_on_device(job, state, statistics), encoded))
      << job.source.name;
}

}  // namespace cairn::quant::test
