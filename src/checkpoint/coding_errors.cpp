#include "checkpoint/coding_errors.hpp"

#include <algorithm>
#include <vector>

namespace cairn::checkpoint {

void add_errors(const CodedBox& coded, quant::ErrorSums& errors, ElementRange range) {
  const std::size_t elements = coded.given.m.size();
  std::vector<float> m(elements);
  std::vector<float> v(elements);
  const std::vector<std::span<const std::byte>> parts(coded.parts.begin(), coded.parts.end());
  coded.tensor.codec->decode(coded.tensor.source, coded.box, parts, {}, {m, v});
  const std::size_t begin = std::min(range.begin, elements);
  const std::size_t count = std::min(range.end, elements) - begin;
  errors.add({coded.given.m.subspan(begin, count), coded.given.v.subspan(begin, count)},
             {std::span(m).subspan(begin, count), std::span(v).subspan(begin, count)});
}

}  // namespace cairn::checkpoint
