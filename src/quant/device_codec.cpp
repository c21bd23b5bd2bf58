// The list of device codecs, and Verdict.
#include "quant/device_codec.hpp"

#include <cstring>

#include "cairn/error.hpp"
#include "quant/own_codec.hpp"
#include "quant/own_device.hpp"
#include "quant/own_lanes.hpp"
#include "quant/paddle_codec.hpp"
#include "quant/paddle_device.hpp"

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

const DeviceCodec& device_codec_of(const Codec& codec) {
  if (&codec == &own_q8()) return own_q8_on_device();
  if (&codec == &own_q4()) return own_q4_on_device();
  if (&codec == &paddle_o1()) return paddle_o1_on_device();
  if (&codec == &paddle_o2()) return paddle_o2_on_device();
  throw Error(ErrorKind::kUsage, "codec " + codec.traits().name + " has no kernels; quantise on the host");
}

}  // namespace cairn::quant
