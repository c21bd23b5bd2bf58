#include "quant/tensor_errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/checked.hpp"
#include "quant/boxes.hpp"
#include "quant/own_math.hpp"
#include "quant/own_scales.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {
namespace {

static_assert(std::is_trivially_copyable_v<TensorErrors>);

constexpr std::uint64_t kFirstBlocks = 4;
constexpr std::uint64_t kOneBlockIn = 191;  // no divisor of a row's number of blocks, as 128 would often be

/// 128 values of log-normal v with sigma 3 span some 23 octaves.
constexpr std::int32_t kUsualOctaves = 24;

/// v below 2^-44 have a root below 24 times 1e-8.
constexpr std::int32_t kSmallestUsual = -44;

/// The blocks of a box, by the number of their first element.
struct BlocksOfBox {
  BlocksOfBox(const CodedBox& coded_box, std::uint64_t all)
      : coded(coded_box),
        elements(all),
        step(coded.codec.traits().block_elements),
        block_bytes(coded.parts[0].size() / base::ceil_div(elements, step)) {}

  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t begin) const {
    return coded.parts[0].subspan(begin / step * block_bytes, block_bytes);
  }
  [[nodiscard]] std::uint64_t count(std::uint64_t begin) const { return std::min(step, elements - begin); }

  /// Decodes the block, whose moments are at `place` of those given.
  void measure(std::uint64_t begin, std::uint64_t place, BlockKind kind, TensorErrors& errors) const {
    const std::uint64_t length = count(begin);
    std::vector<float> m(length);
    std::vector<float> v(length);
    Box box{position_of(coded.box, begin), Shape(coded.box.shape.size(), 1)};
    box.shape.back() = length;
    const std::span<const std::byte> block = bytes(begin);
    coded.codec.decode(coded.source, box, {&block, 1}, {}, {m, v});
    errors.add_block(kind, {coded.given.m.subspan(place, length), coded.given.v.subspan(place, length)}, {m, v});
  }

  const CodedBox& coded;
  std::uint64_t elements;
  std::uint64_t step;
  std::uint64_t block_bytes;
};

}  // namespace

BlockKind kind_of_block(std::span<const std::byte> block) {
  std::uint32_t word = 0;
  for (std::size_t i = sizeof word; i-- > 0;) word = word << 8 | std::to_integer<std::uint32_t>(block[i]);
  const own::Scales scales = own::scales_of(word);
  const std::int32_t range = own::range_of(scales.range);
  const std::int32_t high = static_cast<std::int32_t>(scales.low) * own::kLowStep - 149 * own::kOctave + range;
  const bool is_hard = range > kUsualOctaves * own::kOctave || high < kSmallestUsual * own::kOctave;
  return is_hard ? BlockKind::kHard : BlockKind::kUsual;
}

bool can_be_sampled(const Codec& codec) {
  const Traits& traits = codec.traits();
  return traits.cut == Cut::kWholeBlocks && traits.figures.update_rms > 0;
}

void TensorErrors::add_all(const ConstMoments& given, const ConstMoments& decoded) {
  Kind& all = kinds_[0];
  all.sums.add(given, decoded);
  all.seen_elements += given.m.size();
}

bool TensorErrors::take_block(BlockKind kind, std::uint64_t elements) {
  const std::uint64_t number = kinds_[static_cast<std::size_t>(kind)].seen_blocks;
  count_block(kind, elements);
  return number < kFirstBlocks || number % kOneBlockIn == 0;
}

void TensorErrors::count_block(BlockKind kind, std::uint64_t elements) {
  is_sample_ = true;
  Kind& of = kinds_[static_cast<std::size_t>(kind)];
  of.seen_elements += elements;
  of.seen_blocks += 1;
}

void TensorErrors::add_block(BlockKind kind, const ConstMoments& given, const ConstMoments& decoded) {
  Kind& of = kinds_[static_cast<std::size_t>(kind)];
  of.sums.add(given, decoded);
  of.measured_blocks += 1;
}

void TensorErrors::merge(const TensorErrors& other) {
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    kinds_[k].sums.merge(other.kinds_[k].sums);
    kinds_[k].seen_elements += other.kinds_[k].seen_elements;
    kinds_[k].seen_blocks += other.kinds_[k].seen_blocks;
    kinds_[k].measured_blocks += other.kinds_[k].measured_blocks;
  }
  is_sample_ |= other.is_sample_;
}

ErrorSums TensorErrors::estimate() const {
  ErrorSums all;
  for (const Kind& kind : kinds_) {
    if (kind.sums.elements() == 0) continue;
    ErrorSums sums = kind.sums;
    sums.weigh(static_cast<double>(kind.seen_elements) / sums.elements());
    all.merge(sums);
  }
  return all;
}

std::uint64_t TensorErrors::elements_measured() const {
  double elements = 0;
  for (const Kind& kind : kinds_) elements += kind.sums.elements();
  return static_cast<std::uint64_t>(elements);
}

bool TensorErrors::exceed_figures(const Traits& traits) const {
  const Figures& figures = traits.figures;
  if (figures.update_rms == 0) return false;
  const auto blocks = static_cast<double>(kinds_[0].measured_blocks + kinds_[1].measured_blocks);
  const double allowed = is_sample_ ? 1 + 0.2 / std::sqrt(std::max(blocks, 1.0)) : 1;
  const ErrorSums errors = estimate();
  return errors.update_rms() > allowed * figures.update_rms || errors.root_rms() > allowed * figures.root_rms;
}

void add_errors(const CodedBox& coded, ElementRange range, TensorErrors& errors) {
  const std::size_t elements = coded.given.m.size();
  std::vector<float> m(elements);
  std::vector<float> v(elements);
  const std::vector<std::span<const std::byte>> parts(coded.parts.begin(), coded.parts.end());
  coded.codec.decode(coded.source, coded.box, parts, {}, {m, v});
  const std::size_t begin = std::min(range.begin, elements);
  const std::size_t count = std::min(range.end, elements) - begin;
  errors.add_all({coded.given.m.subspan(begin, count), coded.given.v.subspan(begin, count)},
                 {std::span(m).subspan(begin, count), std::span(v).subspan(begin, count)});
}

void sample_errors(const CodedBox& coded, ElementRange range, TensorErrors& errors) {
  const BlocksOfBox blocks(coded, shard::elements_of(coded.box.shape));
  const std::uint64_t end = std::min(range.end, blocks.elements);
  for (std::uint64_t begin = range.begin; begin < end; begin += blocks.step) {
    const BlockKind kind = kind_of_block(blocks.bytes(begin));
    if (errors.take_block(kind, blocks.count(begin))) blocks.measure(begin, begin, kind, errors);
  }
}

void add_run(const CodedBox& coded, std::uint64_t begin, TensorErrors& errors) {
  const BlocksOfBox blocks(coded, shard::elements_of(coded.box.shape));
  const std::uint64_t end = begin + coded.given.m.size();
  for (std::uint64_t at = begin; at < end; at += blocks.step) {
    const BlockKind kind = kind_of_block(blocks.bytes(at));
    errors.count_block(kind, blocks.count(at));
    blocks.measure(at, at - begin, kind, errors);
  }
}

}  // namespace cairn::quant
