// O1 and O2: the statistics are reduced by one kernel, as keys, and merged on the host; the scales that follow from them go
// to the device as the parts that they are, where the other kernels read them.
#include "quant/paddle_device.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "quant/boxes.hpp"
#include "quant/check.hpp"
#include "quant/device_checks.hpp"
#include "quant/device_kernels.hpp"
#include "quant/paddle_codec.hpp"
#include "quant/paddle_shapes.hpp"
#include "quant/reduction_keys.hpp"
#include "quant/statistics.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {
namespace {

using paddle::kScaleCount;
using paddle::scale_part;
using paddle::Stage;
using paddle::Tiles;
using paddle::with_counts;

Tiles tiles_of(Stage stage, const Shape& shape, const Box& box) {
  Tiles tiles;
  tiles.elements = elements_of(box.shape);
  if (shape.size() == 1) {
    tiles.columns = paddle::kFlatColumns;
    tiles.scale_step = 0;
  } else {
    tiles.columns = box.shape[1];
  }
  if (stage == Stage::kO2) {
    tiles.lead = box.offset[0] % paddle::kGroupRows;
    tiles.scale_row = tiles.columns;
  }
  return with_counts(tiles);
}

class PaddleDevice final : public DeviceCodec {
 public:
  PaddleDevice(Stage stage, const Codec& codec) : stage_(stage), codec_(codec) {}

  [[nodiscard]] const Codec& codec() const override { return codec_; }

  void measure(const Source& source, const Box& box, const ConstDeviceMoments& moments, Statistics& into,
               const gpu::Stream& stream) const override {
    Statistics found = codec_.no_statistics(source.shape, box);
    const std::uint64_t count = found.arrays[0].values.size();
    const gpu::DeviceBuffer keys(kScaleCount * count * sizeof(std::uint32_t));
    Verdict verdict;
    verdict.begin(stream);
    stream.fill(keys.span(), 0);  // kNoKey
    paddle::MeasureJob job{tiles_of(stage_, source.shape, box), moments.m, moments.v, {}, verdict.slot()};
    for (std::size_t i = 0; i < kScaleCount; ++i) {
      job.keys[i] = reinterpret_cast<std::uint32_t*>(keys.span().data) + i * count;
    }
    paddle::launch(job, stream.handle());
    verdict.fetch(stream);
    std::vector<std::uint32_t> on_host(kScaleCount * count);
    stream.copy(std::as_writable_bytes(std::span(on_host)), keys.span());
    stream.synchronise();
    if (!verdict.is_good()) {
      const std::uint64_t index = verdict.first_refused();
      const RefusedValues values = fetch_values(moments, index, stream);
      throw unusual_moment(codec_, source, position_of(box, index), values.m, values.v);
    }
    take_reduction_keys(std::vector<std::uint64_t>(on_host.begin(), on_host.end()), found);
    merge(into, found);
  }

  void encode(const Source& source, const Box& box, const ConstDeviceMoments& moments, const Statistics& statistics,
              DeviceParts out, Verdict& verdict, const gpu::Stream& stream) const override {
    const std::vector<gpu::ConstDeviceSpan> parts(out.begin(), out.end());
    require_parts(codec_, source, box, parts, 1);
    verdict.begin(stream);
    verdict.fetch(stream);
    const auto scales = paddle::stored_scales(stage_, source.shape, box, statistics);
    paddle::EncodeJob job{tiles_of(stage_, source.shape, box), moments.m, moments.v, {}, out[0].data, nullptr};
    const auto pinned = verdict.room(kScaleCount * scales[0].size() * sizeof(float));
    for (std::size_t i = 0; i < kScaleCount; ++i) {
      const gpu::DeviceSpan to = out[scale_part(stage_, i)];
      const auto from = pinned.subspan(i * to.size, to.size);
      std::memcpy(from.data(), scales[i].data(), to.size);
      stream.copy(to, from);
      job.scales[i] = reinterpret_cast<const float*>(to.data);
    }
    if (stage_ == Stage::kO1) job.second = out[2].data;
    paddle::launch(stage_, job, stream.handle());
  }

  void decode(const Source& source, const Box& box, ConstDeviceParts parts, const DecodeOptions& options,
              const DeviceMoments& out, Verdict& verdict, const gpu::Stream& stream) const override {
    require_parts(codec_, source, box, parts, 1);
    verdict.begin(stream);
    verdict.fetch(stream);
    paddle::DecodeJob job{tiles_of(stage_, source.shape, box), parts[0].data, nullptr, {}, out.m, out.v};
    for (std::size_t i = 0; i < kScaleCount; ++i) {
      job.scales[i] = reinterpret_cast<const float*>(parts[scale_part(stage_, i)].data);
    }
    if (stage_ == Stage::kO1) job.second = parts[2].data;
    paddle::launch(stage_, options.paddle_division, job, stream.handle());
  }

  // Every value has a code, and every code a value.
  void raise_encode(const Source&, const Box&, const ConstDeviceMoments&, const Verdict&,
                    const gpu::Stream&) const override {}
  void raise_decode(const Source&, const Box&, const Verdict&) const override {}

 private:
  Stage stage_;
  const Codec& codec_;
};

}  // namespace

const DeviceCodec& paddle_o1_on_device() {
  static const PaddleDevice codec(Stage::kO1, paddle_o1());
  return codec;
}

const DeviceCodec& paddle_o2_on_device() {
  static const PaddleDevice codec(Stage::kO2, paddle_o2());
  return codec;
}

}  // namespace cairn::quant
