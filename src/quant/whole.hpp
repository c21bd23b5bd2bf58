// A whole tensor in one call: measure, encode, decode; for tools and tests, and tensors that one rank holds whole.
#pragma once

#include <string>

#include "base/bytes.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

/// The bytes of each part, in the order of Codec::parts().
using Encoded = std::vector<base::Bytes>;

/// The names of the two moments of one parameter.
struct MomentNames {
  std::string first;   ///< "w/moment1_0"
  std::string second;  ///< "w/moment2_0"

  friend bool operator==(const MomentNames&, const MomentNames&) = default;
};

/// The name under which a part is stored.
[[nodiscard]] std::string stored_name(const Part& part, const MomentNames& names);

/// Throws Error(kInternal) when the tensor is one that the codec leaves alone, or the moments have another size.
[[nodiscard]] Encoded encode_whole(const Codec& codec, const Source& source, const ConstMoments& moments);

/// As encode_whole() with statistics that are known: those of the whole tensor.
[[nodiscard]] Encoded encode_box(const Codec& codec, const Source& source, const Box& box, const ConstMoments& moments,
                                 const Statistics& statistics);

void decode_whole(const Codec& codec, const Source& source, const Encoded& encoded, const DecodeOptions& options,
                  const Moments& out);

}  // namespace cairn::quant
