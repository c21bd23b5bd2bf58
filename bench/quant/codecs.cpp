// The codecs of src/quant, each applied to whole tensors.
#include "codings.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"

namespace cairn::quant_table {

std::vector<Coding> codecs() {
  std::vector<Coding> codings;
  for (const quant::Codec* codec : quant::all_codecs()) {
    const auto code = [codec](const Tensor& tensor) -> std::optional<Decoded> {
      if (!codec->left_alone(tensor.shape).empty()) return std::nullopt;
      const quant::Source source = {tensor.name, tensor.shape};
      const auto encoded = encode_whole(*codec, source, {tensor.m, tensor.v});
      Decoded decoded = {std::vector<float>(tensor.m.size()), std::vector<float>(tensor.v.size()), 0};
      decode_whole(*codec, source, encoded, {}, {decoded.m, decoded.v});
      for (const auto& part : encoded) decoded.size_bytes += static_cast<double>(part.size());
      return decoded;
    };
    codings.push_back({codec->traits().name, codec->traits().bits, code});
  }
  return codings;
}

}  // namespace cairn::quant_table
