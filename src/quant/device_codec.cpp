// The device codecs: their list, their checks, Cairn's own, and Paddle's.
#include "quant/device_codec.hpp"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <initializer_list>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "quant/device_kernels.hpp"
#include "quant/own_block.hpp"
#include "quant/own_codec.hpp"
#include "quant/own_lanes.hpp"
#include "quant/paddle_codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {

Verdict::Verdict() : slot_(sizeof(std::uint64_t)), answer_(sizeof(std::uint64_t)) {}

void Verdict::begin(const gpu::Stream& stream) { stream.fill(slot_.span(), 0xff); }
void Verdict::fetch(const gpu::Stream& stream) { stream.copy(answer_.span(), slot_.span()); }
std::uint64_t* Verdict::slot() const { return reinterpret_cast<std::uint64_t*>(slot_.span().data); }

std::span<std::byte> Verdict::room(std::uint64_t bytes) {
  if (room_.size() < bytes) room_ = gpu::PinnedBuffer(bytes);
  return room_.span().first(bytes);
}

std::uint64_t Verdict::first_refused() const {
  std::uint64_t first = 0;
  std::memcpy(&first, answer_.span().data(), sizeof first);
  return first;
}

bool Verdict::is_good() const { return first_refused() == own::kNothingRefused; }

namespace {

Error misuse(const Codec& codec, const std::string& what) {
  return base::internal_error(fmt::format("{} on a device: {}", codec.traits().name, what));
}

// q8 and q4: one kernel for a box, since its blocks are independent.

constexpr std::uint64_t kPartAlignment = 8;  // for the stores of own_lanes.hpp

class OwnDevice final : public DeviceCodec {
 public:
  OwnDevice(const own::Format& format, const Codec& codec) : format_(format), codec_(codec) {}

  [[nodiscard]] const Codec& codec() const override { return codec_; }

  void measure(const Source&, const Box&, const ConstDeviceMoments&, Statistics&, const gpu::Stream&) const override {}

  void encode(const Source& source, const Box& box, const ConstDeviceMoments& moments, const Statistics&,
              DeviceParts out, Verdict& verdict, const gpu::Stream& stream) const override {
    require_parts(codec_, source, box, out, kPartAlignment);
    verdict.begin(stream);
    own::launch(format_, own::EncodeJob{moments.m, moments.v, elements_of(box.shape), out[0].data, verdict.slot()},
                stream.handle());
    verdict.fetch(stream);
  }

  void raise_encode(const Source& source, const Box& box, const ConstDeviceMoments& moments, const Verdict& verdict,
                    const gpu::Stream& stream) const override {
    if (verdict.is_good()) return;
    const std::uint64_t index = verdict.first_refused();
    const RefusedValues values = fetch_values(moments, index, stream);
    throw refused_pair(codec_, source, box, index, values.m, values.v);
  }

 private:
  const own::Format& format_;
  const Codec& codec_;
};

// O1 and O2: one kernel reduces the statistics, as keys, and the host merges them. The host makes the scales and copies
// them to the device as parts, where the encoding kernel reads them.

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
    require_parts(codec_, source, box, out, 1);
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

  // The kernels of encode() never refuse a value.
  void raise_encode(const Source&, const Box&, const ConstDeviceMoments&, const Verdict&,
                    const gpu::Stream&) const override {}

 private:
  Stage stage_;
  const Codec& codec_;
};

}  // namespace

void require_parts(const Codec& codec, const Source& source, const Box& box, DeviceParts parts,
                   std::uint64_t alignment) {
  const auto expected = codec.parts(source.shape);
  if (parts.size() != expected.size()) {
    throw misuse(codec, fmt::format("{} parts instead of {}", parts.size(), expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::uint64_t wanted = bytes_of(expected[i], codec.part_box(source.shape, i, box));
    if (parts[i].size != wanted) {
      throw misuse(codec, fmt::format("part {} of '{}' has {} bytes instead of {}", i, base::printable(source.name),
                                      parts[i].size, wanted));
    }
    const std::uint64_t unit = expected[i].role == Role::kScales ? sizeof(float) : alignment;
    if (reinterpret_cast<std::uintptr_t>(parts[i].data) % unit != 0) {
      throw misuse(codec, fmt::format("part {} of '{}' is not at a multiple of {} bytes", i,
                                      base::printable(source.name), unit));
    }
  }
}

RefusedValues fetch_values(const ConstDeviceMoments& moments, std::uint64_t index, const gpu::Stream& stream) {
  std::array<float, 2> values{};
  const auto bytes = std::as_writable_bytes(std::span(values));
  stream.copy(bytes.first(sizeof(float)), {reinterpret_cast<const std::byte*>(moments.m + index), sizeof(float)});
  stream.copy(bytes.last(sizeof(float)), {reinterpret_cast<const std::byte*>(moments.v + index), sizeof(float)});
  stream.synchronise();
  return {values[0], values[1]};
}

const DeviceCodec& device_codec_of(const Codec& codec) {
  static const OwnDevice q8(own::kQ8, own_q8());
  static const OwnDevice q4(own::kQ4, own_q4());
  static const PaddleDevice o1(Stage::kO1, paddle_o1());
  static const PaddleDevice o2(Stage::kO2, paddle_o2());
  for (const DeviceCodec* device : std::initializer_list<const DeviceCodec*>{&q8, &q4, &o1, &o2}) {
    if (&device->codec() == &codec) return *device;
  }
  throw Error(ErrorKind::kUsage, "codec " + codec.traits().name + " has no kernels; quantise on the host");
}

}  // namespace cairn::quant
