#include "quant/errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/checked.hpp"
#include "quant/boxes.hpp"
#include "quant/own_grid.hpp"
#include "quant/own_math.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {
namespace {

constexpr double kEpsilon = 1e-8;

double over(double error, double scale) {
  if (error == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : error / scale;
}

static_assert(std::is_trivially_copyable_v<TensorErrors>);

constexpr std::uint64_t kFirstBlocks = 4;
constexpr std::uint64_t kOneBlockIn = 191;  // a prime: unlike 128, it seldom divides the number of blocks in a row

/// 128 values of log-normal v with sigma 3 span about 23 octaves.
constexpr std::int32_t kUsualOctaves = 24;

/// For v below 2^-44, sqrt(v) is below 24 * 1e-8.
constexpr std::int32_t kSmallestUsual = -44;

/// The blocks of a box. A block is identified by the number of its first element.
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

  /// Decodes the block and adds its errors. The block's moments begin at element `place` of coded.given.
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

/// The inner loop becomes vector code: each sum has four parts, and each part adds up every fourth value.
CAIRN_QUANT_CLONES void ErrorSums::add_run(const float* m, const float* v, const float* decoded_m,
                                           const float* decoded_v, ErrorSums& into) {
  constexpr std::size_t kSums = 4;
  double update_error[kSums] = {};
  double update[kSums] = {};
  double update_max[kSums] = {};
  double root_error[kSums] = {};
  double root_max[kSums] = {};
  double roots[kSums] = {};
  double first_max[kSums] = {};
  double second_max[kSums] = {};
  for (std::size_t i = 0; i < kRun; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const double given_m = m[i + k];
      const double given_v = v[i + k];
      const double found_m = decoded_m[i + k];
      const double found_v = decoded_v[i + k];
      const double root = std::sqrt(given_v);
      const double found_root = std::sqrt(found_v);
      const double step = given_m / (root + kEpsilon);
      const double error = std::abs(found_m / (found_root + kEpsilon) - step);
      const double relative = given_v > 0 ? std::abs(found_root / root - 1) : 0.0;
      update_error[k] += error * error;
      update[k] += step * step;
      update_max[k] = update_max[k] < error ? error : update_max[k];
      root_error[k] += relative * relative;
      root_max[k] = root_max[k] < relative ? relative : root_max[k];
      roots[k] += given_v > 0 ? 1.0 : 0.0;
      const double first = std::abs(found_m - given_m);
      const double second = std::abs(found_v - given_v);
      first_max[k] = first_max[k] < first ? first : first_max[k];
      second_max[k] = second_max[k] < second ? second : second_max[k];
    }
  }
  for (std::size_t k = 0; k < kSums; ++k) {
    into.update_error_ += update_error[k];
    into.update_ += update[k];
    into.update_max_ = std::max(into.update_max_, update_max[k]);
    into.root_error_ += root_error[k];
    into.root_max_ = std::max(into.root_max_, root_max[k]);
    into.roots_ += roots[k];
    into.first_max_ = std::max(into.first_max_, first_max[k]);
    into.second_max_ = std::max(into.second_max_, second_max[k]);
  }
  into.elements_ += static_cast<double>(kRun);
}

void ErrorSums::add(const ConstMoments& given, const ConstMoments& decoded) {
  std::size_t begin = 0;
  for (; begin + kRun <= given.m.size(); begin += kRun) {
    add_run(given.m.data() + begin, given.v.data() + begin, decoded.m.data() + begin, decoded.v.data() + begin, *this);
  }
  const std::size_t rest = given.m.size() - begin;
  if (rest == 0) return;
  // The rest of the run is filled with pairs that add nothing.
  std::array<std::array<float, kRun>, 4> values{};
  const std::array<std::span<const float>, 4> from = {given.m, given.v, decoded.m, decoded.v};
  for (std::size_t i = 0; i < from.size(); ++i) std::ranges::copy(from[i].subspan(begin, rest), values[i].begin());
  add_run(values[0].data(), values[1].data(), values[2].data(), values[3].data(), *this);
  elements_ -= static_cast<double>(kRun - rest);
}

void ErrorSums::merge(const ErrorSums& other) {
  elements_ += other.elements_;
  update_error_ += other.update_error_;
  update_ += other.update_;
  update_max_ = std::max(update_max_, other.update_max_);
  root_error_ += other.root_error_;
  roots_ += other.roots_;
  root_max_ = std::max(root_max_, other.root_max_);
  first_max_ = std::max(first_max_, other.first_max_);
  second_max_ = std::max(second_max_, other.second_max_);
}

void ErrorSums::weigh(double weight) {
  for (double* sum : {&elements_, &update_error_, &update_, &root_error_, &roots_}) *sum *= weight;
}

double ErrorSums::update_rms() const { return over(std::sqrt(update_error_), std::sqrt(update_)); }

double ErrorSums::update_max() const { return over(update_max_, std::sqrt(update_ / std::max(elements_, 1.0))); }

double ErrorSums::root_rms() const { return std::sqrt(root_error_ / std::max(roots_, 1.0)); }

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
