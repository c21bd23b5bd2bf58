// q8 and q4: one kernel for a box, whose blocks are independent of all others.
#include "quant/own_device.hpp"

#include "quant/boxes.hpp"
#include "quant/device_checks.hpp"
#include "quant/device_kernels.hpp"
#include "quant/own_block.hpp"
#include "quant/own_codec.hpp"

namespace cairn::quant {
namespace {

constexpr std::uint64_t kPartAlignment = 8;  // of own_lanes.hpp

class OwnDevice final : public DeviceCodec {
 public:
  OwnDevice(const own::Format& format, const Codec& codec) : format_(format), codec_(codec) {}

  [[nodiscard]] const Codec& codec() const override { return codec_; }

  void measure(const Source&, const Box&, const ConstDeviceMoments&, Statistics&, const gpu::Stream&) const override {}

  void encode(const Source& source, const Box& box, const ConstDeviceMoments& moments, const Statistics&,
              DeviceParts out, Verdict& verdict, const gpu::Stream& stream) const override {
    const std::vector<gpu::ConstDeviceSpan> parts(out.begin(), out.end());
    require_parts(codec_, source, box, parts, kPartAlignment);
    verdict.begin(stream);
    own::launch(format_, own::EncodeJob{moments.m, moments.v, elements_of(box.shape), out[0].data, verdict.slot()},
                stream.handle());
    verdict.fetch(stream);
  }

  void decode(const Source& source, const Box& box, ConstDeviceParts parts, const DecodeOptions&,
              const DeviceMoments& out, Verdict& verdict, const gpu::Stream& stream) const override {
    require_parts(codec_, source, box, parts, kPartAlignment);
    verdict.begin(stream);
    own::launch(format_, own::DecodeJob{parts[0].data, elements_of(box.shape), out.m, out.v, verdict.slot()},
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

  void raise_decode(const Source& source, const Box& box, const Verdict& verdict) const override {
    if (verdict.is_good()) return;
    throw damaged_block(codec_, source, box, verdict.first_refused() * own::kBlockElements);
  }

 private:
  const own::Format& format_;
  const Codec& codec_;
};

}  // namespace

const DeviceCodec& own_q8_on_device() {
  static const OwnDevice codec(own::kQ8, own_q8());
  return codec;
}

const DeviceCodec& own_q4_on_device() {
  static const OwnDevice codec(own::kQ4, own_q4());
  return codec;
}

}  // namespace cairn::quant
